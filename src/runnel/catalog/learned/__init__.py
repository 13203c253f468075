"""Statistics of the stream, operators and queries that runs collect.

In: observations that a batch commits. Out: merged statistics for the next compilation.
"""
