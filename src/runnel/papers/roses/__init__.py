"""RoSeS: filter trees (factoring, STA, VCA), the tree matcher, and their explanation.

In: predicates of one source. Out: a filter tree, and a matcher that walks it.
"""
