"""Subsumption: `a` subsumes `b` if every item that matches `b` matches `a`. Sound; it may miss cases.

In: atoms, clauses and predicates. Out: `subsumes` answers for two conditions, `wider_literals` and `wider_clauses`
give the relation over a whole predicate table, in arrays. Factorisation shares filters by it, routing leaves out by
it: a missed case costs work, a wrong one would lose matches.
"""
