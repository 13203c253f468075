"""Partitions in the driver: which there are, published with plans, balanced while they run, and shown to people.

In: a base, the settings, and the loads that batches note. Out: plan versions with a distribution, and its figures.
`partitioned_plan` is the port by which the engine comes here.
"""
