"""Compiling plans, and building the matcher of a plan.

In: logical plans and statistics of the stream. Out: plan folders with the arrays of all matchers; a `Matcher`.
"""
