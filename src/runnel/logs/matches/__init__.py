"""The match log: which queries each item satisfies, by range of sequences and by query.

In: match parts that workers wrote. Out: matches; small files are compacted into larger ones.
"""
