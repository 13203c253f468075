"""Statistics of the stream, operators, queries and partitions that runs collect.

In: observations that a batch commits. Out: merged statistics for the next compilation.
"""
