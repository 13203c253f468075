"""The anchor index: candidates by key, then the exact check. Also what all array matchers share.

In: a plan part and chunks of items. Out: pairs of a row and a query.
"""
