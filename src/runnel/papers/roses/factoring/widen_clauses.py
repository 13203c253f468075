"""Wider disjunctions: clauses that no query has, but that subsume several clauses which do (RoSeS §4.3).

In: the clauses of a table. Out: the same clauses, and unions of clauses that share a literal: `a or b or c` can stand
above `a or b` and `a or c`. The paper's graph has all predicates that subsume the given ones; here there are a few
unions for each literal and each clause. Clauses that share nothing are not united: their union asks no less than they
do.
"""

from __future__ import annotations

import math

import numpy as np

from runnel.arrays import Array, Rows

_LONGEST = 24
"""Literals of a union, at most."""

_COMPARED = 48
"""Clauses with one literal that are compared with each other, the most selective ones."""

_CHAIN = 12
"""Clauses that are united one after another because all have one literal."""

_WIDEST = -math.log(0.1)
"""A union that nine items in ten satisfy saves next to nothing."""

Clause = frozenset[int]


def widen_clauses(clauses: Rows, shares: Array) -> Rows:
    """The clauses with their unions behind them; `shares` is the part of all items that satisfies each atom.

    >>> [row for row in widen_clauses(Rows.of([[0, 2], [0, 4], [6]]), np.array([0.1, 0.1, 0.1, 0.1])).lists()]
    [[0, 2], [0, 4], [6], [0, 2, 4]]
    """
    # What a literal adds to a union: minus the logarithm of the part of the items that it does not let through.
    passes = np.stack([shares, 1.0 - shares], axis=1).reshape(-1)
    weights: list[float] = (-np.log(np.maximum(1.0 - passes, 1e-12))).tolist()
    known = dict.fromkeys(frozenset(row) for row in clauses.lists())
    holders: dict[int, list[Clause]] = {}
    for row in known:
        for literal in row if 1 < len(row) <= _LONGEST else ():
            holders.setdefault(literal, []).append(row)
    rank = {row: (_weight(row, weights), sorted(row)) for row in known}
    added: dict[Clause, None] = {}
    for literal in sorted(holders):
        for union in _unions(sorted(holders[literal], key=rank.__getitem__)[:_COMPARED], weights):
            if union not in known and len(union) <= _LONGEST and _weight(union, weights) < _WIDEST:
                added[union] = None
    return Rows.of([*clauses.lists(), *(sorted(union) for union in added)])


def _unions(clauses: list[Clause], weights: list[float]) -> list[Clause]:
    """Each clause with the one that widens it least; and a chain from the most selective one on."""
    if len(clauses) < 2:
        return []
    found = [one | _nearest(one, clauses, weights) for one in clauses]
    union, *left = clauses
    for _ in range(min(_CHAIN, len(left))):
        nearest = _nearest(union, left, weights)
        left.remove(nearest)
        union |= nearest
        found.append(union)
    return found


def _nearest(union: Clause, clauses: list[Clause], weights: list[float]) -> Clause:
    """The clause, other than the given one, that widens it least."""
    return min((one for one in clauses if one is not union), key=lambda one: _weight(one - union, weights))


def _weight(literals: Clause, weights: list[float]) -> float:
    return sum(weights[literal] for literal in literals)
