"""Sampled costs of queries and sampled statistics of the stream.

In: a few items of each slice. Out: costs of queries, and frequencies of words and atoms.
"""
