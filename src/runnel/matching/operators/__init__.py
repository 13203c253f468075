"""Operators: predicates that cost. Undecided pairs of item and way in; decisions, bindings and what was learned out.

`ways` lays out what a plan asks, `orders` say which call comes next, `caller` asks, `decide` puts them together.
"""
