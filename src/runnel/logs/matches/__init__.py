"""The match log: the queries that each item satisfies, by range of sequences and by query.

In: match parts that workers wrote. Out: matches. Small files are compacted into larger ones.
"""
