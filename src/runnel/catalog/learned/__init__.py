"""Statistics that runs leave behind: of the stream, of operators and of queries.

In: observations that a batch commits. Out: merged statistics for the next compilation.
"""
