"""Orders of evaluation: ways, their tests and what calls cost in; which call an item needs next out.

A call is evaluated at most once for an item, and its answer settles all its tests. Orders differ in how many calls
that takes, never in what is decided. `problem` has the arrays, one file each order, `rounds` asks and settles.
"""
