"""Explanations of how a query is matched, for `explain`: its predicates, anchors and operators.

In: a loaded plan and a query. Out: explanations as plain data.
"""
