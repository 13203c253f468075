"""Dividing queries over partitions: what each costs, which go together, and when to divide again.

In: a base, statistics and a number of workers. Out: folders of the router and the partitions.
"""
