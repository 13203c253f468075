"""Matching: items in, matches out, one folder per family of conditions.

In: a loaded plan and batches of items. Out: for every item the ids of the queries that it matches, and the
failures. The contract is in `contract.py`; `compile` makes plans and the matchers of plans.
"""
