"""The anchor index, which finds candidates by key and then checks them exactly, and code that several matchers share.

In: a plan part and chunks of items. Out: pairs of a row and a query.
"""
