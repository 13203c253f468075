"""Match graph patterns. In: the graphs of items. Out: the patterns that each graph contains.

`patterns` stores the patterns of a plan part in arrays, grouped by shape. `search` finds them in the graphs of a
batch. `graph_index` is the interface for the other parts of matching.
"""
