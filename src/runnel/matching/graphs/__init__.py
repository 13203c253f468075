"""Matching graph patterns: graphs of items in, the patterns that each contains out.

`patterns` has the patterns of a plan part in arrays, grouped by shape; `search` finds them in the graphs of a batch;
`bind_variables` gives the bindings of matches.
"""
