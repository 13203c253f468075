"""Subsumption: `a` subsumes `b` if every item that matches `b` matches `a`. Sound; it may miss cases.

In: atoms, clauses and predicates. Out: `subsumes` compares two conditions; `wider_literals` and `wider_clauses`
return the relation for a whole predicate table as arrays. Factorization uses it to share filters, and routing to skip
work. A missed case costs time, but a wrong one would lose matches.
"""
