"""Search for patterns in the graphs of a batch, in compiled kernels.

In: the arrays of patterns, and the graphs of a batch. Out: the patterns that each graph contains, and their
solutions.
"""
