"""Matching graph patterns: graphs of items in, the patterns that each can be laid into out.

`patterns` has all patterns of a plan part in arrays, grouped by shape; `publications` the graphs of a batch.
"""
