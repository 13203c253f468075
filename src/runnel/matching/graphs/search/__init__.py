"""The search for patterns in the graphs of a batch, in compiled kernels.

In: pattern arrays and publications. Out: the patterns that each graph contains, and their solutions.
"""
