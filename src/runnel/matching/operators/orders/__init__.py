"""Orders of operator calls. In: disjuncts, their tests and the cost of calls. Out: the next call of each item.

A call is made at most once per item, and its answer decides all its tests. Orders differ in the number of calls,
never in the decisions. `problem` defines the arrays, `static_greedy` and `adaptive` are the orders in use, `rounds`
names the next calls and applies their answers, and `registry` finds orders by name.
"""
