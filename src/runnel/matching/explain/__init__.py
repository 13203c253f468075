"""How a query is matched, for `explain`: its predicates, its anchors and its operators.

In: a loaded plan and a query. Out: explanations as plain data.
"""
