"""Matching of items against compiled plans.

In: a loaded plan and batches of items. Out: for every item the ids of the queries that it matches, and the
failures. `contract.py` defines the interface of matchers; `compile` compiles plans and builds their matchers.
"""
