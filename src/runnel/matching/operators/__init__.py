"""Operators: plug-in predicates that are expensive to evaluate.

In: pairs of an item and a disjunct that the other conditions have not decided. Out: decisions and bindings. `decide`
evaluates the disjuncts, `orders` chooses the next call, `ask` makes the calls, `plugins` runs the operators, and
`builtin` contains the operators that come with Runnel.
"""
