"""What matching costs and what the stream is like, by samples.

In: a few items of each slice. Out: costs of queries, and frequencies of words and atoms.
"""
