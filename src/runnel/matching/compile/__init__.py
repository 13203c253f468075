"""Compile plans, and build the matcher of a plan.

In: logical plans and statistics of the stream. Out: plan folders that contain the matchers' arrays, and a `Matcher`.
"""
