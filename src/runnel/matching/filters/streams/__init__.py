"""Streams: the layout for very many filters. A key's predicates lie in one run of numbers, their checks beside them.

Items are matched in blocks: the truth of an atom is a mask with a bit for every item of the block, so that one walk
along a key's stream decides its predicates for all of them. In: a logical plan. Out: a part that matches batches.
"""
