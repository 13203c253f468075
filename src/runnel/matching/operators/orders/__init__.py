"""Orders of evaluation: disjuncts, their tests and the cost of calls in; the call that an item needs next out.

A call is evaluated at most once per item, and its answer decides all its tests. Orders differ in how many calls that
takes, never in what is decided. `problem` has the arrays, `static_greedy` and `adaptive` are the orders in use,
`rounds` asks and applies answers, and `registry` finds these and others by name.
"""
