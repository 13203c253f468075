"""Matching graph patterns: graphs of items in, the patterns that each contains out.

`patterns` has the patterns of a plan part in arrays, grouped by shape; `search` finds them in the graphs of a batch;
`graph_index` is what the rest of matching uses.
"""
