"""Parsing of graph patterns.

In: the text of a `graph { … }` block. Out: a graph pattern, and the expansion of its prefixes, or a StatementError.
"""
