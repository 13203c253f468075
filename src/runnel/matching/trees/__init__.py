"""Matching of tree patterns: all patterns of a plan part are evaluated on the node arrays of a tree at once.

In: patterns. Out: `TREE_INDEX`, the index of the family. Patterns are found by their rarest required feature (a name,
a parent and a child, or a name with a value) and then checked exactly: a kernel computes for every step of a pattern
the list of nodes that satisfy it, from the innermost steps outwards. Shared steps are computed once.
"""
