"""Clauses without what is redundant in them; used while normal forms are built."""

from __future__ import annotations

from collections.abc import Iterable

Clauses = frozenset[frozenset[int]]
"""A conjunction of clauses.

A clause is a set of literals, a literal and its complement differ in the lowest bit.
"""

UNSATISFIABLE: Clauses = frozenset([frozenset()])


def simplify_clauses(clauses: Iterable[frozenset[int]]) -> Clauses:
    """An equivalent conjunction: no tautologies, single literals propagated, no clause implied by another.

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
    """Remove the complements of single literals from the other clauses, until nothing changes."""
    singles: set[int] = set()
    while True:
        found = {literal for clause in clauses if len(clause) == 1 for literal in clause}
        if found == singles:
            return clauses
        singles = found
        denied = {literal ^ 1 for literal in singles}
        clauses = {clause - denied if not denied.isdisjoint(clause) else clause for clause in clauses}


def _absorb(clauses: set[frozenset[int]]) -> Clauses:
    """Drop every clause that contains another one."""
    kept: list[frozenset[int]] = []
    for clause in sorted(clauses, key=len):
        if not any(smaller <= clause for smaller in kept):
            kept.append(clause)
    return frozenset(kept)
