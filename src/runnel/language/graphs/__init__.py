"""How graph patterns are written.

In: the text of a `graph { … }` block. Out: a graph pattern whose IRIs are written out, or an error with its place.
"""
