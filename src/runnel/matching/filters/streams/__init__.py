"""Streams: the index layout for very many filters. The predicates of a key are stored together with their checks.

Items are matched in blocks. The truth of an atom is a mask with one bit per item of the block, so reading a key's
stream once decides its predicates for all items. In: a logical plan. Out: a matcher of batches for a plan part.
"""
