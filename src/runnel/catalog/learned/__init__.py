"""Statistics that runs leave behind: of the stream, of operators, of queries and of partitions.

In: observations that a batch commits. Out: merged statistics for the next compilation.
"""
