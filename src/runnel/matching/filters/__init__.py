"""Matching of conditions on single items: `streams` is the default matcher, `index` its fallback.

In: a logical plan. Out: index arrays at compile time, and matchers over them.
"""
