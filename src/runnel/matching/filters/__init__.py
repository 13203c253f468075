"""Conditions on single items: `streams` is the matcher in use, `index` its fallback.

In: a logical plan. Out: index arrays at compile time, and matchers over them.
"""
