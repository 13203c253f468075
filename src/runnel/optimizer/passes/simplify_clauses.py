"""Simplification of clauses, which `normalize_predicates` uses while it builds normal forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

Clauses = frozenset[frozenset[int]]
"""A conjunction of clauses. A clause is a set of literals; a literal and its complement differ in the lowest bit."""

UNSATISFIABLE: Clauses = frozenset([frozenset()])


def simplify_clauses(clauses: Iterable[frozenset[int]]) -> Clauses:
    """Return an equivalent conjunction without tautologies and implied clauses, with unit literals propagated.

    >>> a, b, not_a = 2, 4, 3
    >>> sorted(map(sorted, simplify_clauses([frozenset([a]), frozenset([not_a, b]), frozenset([a, b])])))
    [[2], [4]]
    """
    kept = {clause for clause in clauses if not any(literal ^ 1 in clause for literal in clause)}
    if len(kept) < 2:
        return frozenset(kept)
    propagated = _propagate(kept)
    return UNSATISFIABLE if frozenset() in propagated else _absorb(propagated)


def _propagate(clauses: set[frozenset[int]]) -> set[frozenset[int]]:
    """Remove the complements of unit literals from the other clauses, until nothing changes."""
    units: set[int] = set()
    while True:
        new_units = {literal for clause in clauses if len(clause) == 1 for literal in clause}
        if new_units == units:
            return clauses
        units = new_units
        complements = {literal ^ 1 for literal in units}
        clauses = {clause - complements if not complements.isdisjoint(clause) else clause for clause in clauses}


def _absorb(clauses: set[frozenset[int]]) -> Clauses:
    """Drop every clause that contains another one.

    A clause that contains a smaller one also contains the rarest literal of the smaller one. So each kept clause is
    listed under its rarest literal, and a clause is compared only with those listed under its own literals. Comparing
    all pairs would take quadratic time for conjunctions of many thousand clauses.
    """
    counts = Counter(literal for clause in clauses for literal in clause)
    kept: dict[int, list[frozenset[int]]] = {}
    for clause in sorted(clauses, key=len):
        if not any(smaller <= clause for literal in clause for smaller in kept.get(literal, ())):
            rarest = min(clause, key=counts.__getitem__)
            kept.setdefault(rarest, []).append(clause)
    return frozenset(clause for listed in kept.values() for clause in listed)
