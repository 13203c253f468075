"""Partitioning of queries: estimate their costs, assign them to partitions, and rebalance partitions.

In: a base, statistics and a number of partitions. Out: plan folders of the router and the partitions.
"""
