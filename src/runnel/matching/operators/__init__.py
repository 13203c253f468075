"""Operators: predicates that cost. Undecided pairs of item and disjunct in; decisions and bindings out.

`decide` says which disjuncts hold, `orders` which call comes next, `ask` makes the call, `plugins` runs the operator,
`builtin` has the operators that come with Runnel.
"""
