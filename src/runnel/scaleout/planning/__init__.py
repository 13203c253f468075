"""Partitions in the driver: create and publish them with plans, rebalance them, and report on them.

In: a base, the settings, and the loads that batches record. Out: plan versions with a distribution, and figures about
it. `partitioned_plan` implements the port through which the engine uses this package.
"""
