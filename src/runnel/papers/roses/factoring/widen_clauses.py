"""Wider disjunctions: clauses that no query has, but that subsume several clauses of queries (RoSeS §4.3).

In: the clauses of a table. Out: the same clauses, and unions of clauses that share a literal. For example,
`a or b or c` can be the parent of `a or b` and `a or c`. The paper's graph has all predicates that subsume the given
ones; this module creates a few unions per literal and per clause. Clauses without a common literal are not united,
because their union costs as many evaluations as the clauses themselves.
"""

from __future__ import annotations

import math

import numpy as np

from runnel.arrays import Array, Rows

_MAX_LITERALS = 24
"""The maximum number of literals of a union."""

_MAX_COMPARED = 48
"""The maximum number of clauses per literal that are compared with each other, the most selective first."""

_MAX_CHAIN = 12
"""The maximum number of clauses with a common literal that are united one after another."""

_MAX_WEIGHT = -math.log(0.1)
"""The weight of a union that 90 % of the items satisfy. A wider union saves next to nothing."""

Clause = frozenset[int]


def widen_clauses(clauses: Rows, shares: Array) -> Rows:
    """Append unions to the clauses. `shares` is the share of all items that satisfies each atom.

    >>> [row for row in widen_clauses(Rows.of([[0, 2], [0, 4], [6]]), np.array([0.1, 0.1, 0.1, 0.1])).lists()]
    [[0, 2], [0, 4], [6], [0, 2, 4]]
    """
    # The weight of a literal in a union: minus the logarithm of the share of the items that do not satisfy it.
    passes = np.stack([shares, 1.0 - shares], axis=1).reshape(-1)
    weights: list[float] = (-np.log(np.maximum(1.0 - passes, 1e-12))).tolist()
    known = dict.fromkeys(frozenset(row) for row in clauses.lists())
    holders: dict[int, list[Clause]] = {}
    for row in known:
        for literal in row if 1 < len(row) <= _MAX_LITERALS else ():
            holders.setdefault(literal, []).append(row)
    rank = {row: (_weight(row, weights), sorted(row)) for row in known}
    added: dict[Clause, None] = {}
    for literal in sorted(holders):
        for union in _unions(sorted(holders[literal], key=rank.__getitem__)[:_MAX_COMPARED], weights):
            if union not in known and len(union) <= _MAX_LITERALS and _weight(union, weights) < _MAX_WEIGHT:
                added[union] = None
    return Rows.of([*clauses.lists(), *(sorted(union) for union in added)])


def _unions(clauses: list[Clause], weights: list[float]) -> list[Clause]:
    """Unite each clause with the clause that widens it least, and build a chain from the most selective clause on."""
    if len(clauses) < 2:
        return []
    unions = [clause | _nearest(clause, clauses, weights) for clause in clauses]
    union, *others = clauses
    for _ in range(min(_MAX_CHAIN, len(others))):
        nearest = _nearest(union, others, weights)
        others.remove(nearest)
        union |= nearest
        unions.append(union)
    return unions


def _nearest(union: Clause, clauses: list[Clause], weights: list[float]) -> Clause:
    """Return the other clause that widens a union the least."""
    return min(
        (clause for clause in clauses if clause is not union), key=lambda clause: _weight(clause - union, weights)
    )


def _weight(literals: Clause, weights: list[float]) -> float:
    return sum(weights[literal] for literal in literals)
