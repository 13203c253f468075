"""Conditions on single items: `scan` asks every query about every item, `index` finds candidates by key, then checks.

In: a logical plan, for which `layout` lays out the index arrays at compile time. Out: matchers over these arrays.
"""
