"""Anchors: the clause of each predicate that the index uses to find the predicate.

A predicate is *anchored* at the clause that the fewest items are expected to satisfy, among its clauses that are
disjunctions of keys. An item can satisfy the predicate only if it has one of these keys. A predicate without such a
clause (it has only ranges or negations) has no anchor and is checked for every item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows, read_only
from runnel.kernel import Number, kernel
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout
from runnel.matching.filters.atoms.atom_tests import TestKind
from runnel.plan.logical_plan import LogicalPlan


@dataclass(frozen=True)
class Anchors:
    """The anchors of all predicates.

    `clauses` has the anchor of each predicate, or NOTHING, and `keys` the keys of the anchor. `checks` are the
    clauses that remain to be checked for a candidate, the most selective first: all clauses except an anchor that its
    keys prove. `clause_shares` is the expected share of items that satisfy each clause.
    """

    clauses: Array
    keys: Rows
    checks: Rows
    clause_shares: Array


def choose_anchors(logical: LogicalPlan, atoms: AtomLayout) -> Anchors:
    """Choose the anchors of all predicates."""
    shares, usable, proven = _weigh_clauses(
        read_only(logical.clauses.offsets),
        read_only(logical.clauses.values),
        read_only(atoms.atom_shares),
        np.diff(atoms.atom_candidates.offsets) > 0,
        atoms.atom_kinds == TestKind.KEY,
    )
    count = len(logical.predicates)
    anchors = np.empty(count, dtype=IDENTIFIER)
    check_offsets = np.zeros(count + 1, dtype=np.int64)
    check_values = np.empty(len(logical.predicates.values), dtype=IDENTIFIER)
    _order_clauses(
        read_only(logical.predicates.offsets),
        read_only(logical.predicates.values),
        shares,
        usable,
        proven,
        anchors,
        check_offsets,
        check_values,
    )
    key_offsets, key_values = _anchor_keys(
        anchors,
        read_only(logical.clauses.offsets),
        read_only(logical.clauses.values),
        read_only(atoms.atom_candidates.offsets),
        read_only(atoms.atom_candidates.values),
    )
    checks = Rows(check_offsets, check_values[: check_offsets[-1]].copy())
    return Anchors(anchors, Rows(key_offsets, key_values), checks, shares)


@kernel
def _weigh_clauses(
    offsets: Array, literals: Array, atom_shares: Array, has_keys: Array, is_key: Array
) -> tuple[Array, Array, Array]:
    """Return the share of items expected to satisfy each clause, whether keys find it, and whether they prove it."""
    count = len(offsets) - 1
    shares = np.zeros(count)
    usable = np.ones(count, dtype=np.bool_)
    proven = np.ones(count, dtype=np.bool_)
    for clause in range(count):
        for index in range(offsets[clause], offsets[clause + 1]):
            atom = literals[index] >> 1
            if literals[index] & 1:
                shares[clause] += 1.0
                usable[clause] = proven[clause] = False
            else:
                shares[clause] += atom_shares[atom]
                usable[clause] &= has_keys[atom]
                proven[clause] &= is_key[atom]
    return shares, usable, proven


@kernel
def _order_clauses(
    offsets: Array,
    clauses: Array,
    shares: Array,
    usable: Array,
    proven: Array,
    anchors: Array,
    check_offsets: Array,
    check_values: Array,
) -> None:
    """Choose each predicate's anchor, and sort the clauses that remain to be checked by their shares."""
    filled = 0
    for predicate in range(len(offsets) - 1):
        anchor = NOTHING
        for index in range(offsets[predicate], offsets[predicate + 1]):
            clause = clauses[index]
            if usable[clause] and (anchor == NOTHING or _before(shares, clause, anchor)):
                anchor = clause
        anchors[predicate] = anchor
        first = filled
        for index in range(offsets[predicate], offsets[predicate + 1]):
            clause = clauses[index]
            if clause == anchor and proven[clause]:
                continue
            position = filled
            while position > first and _before(shares, clause, check_values[position - 1]):
                check_values[position] = check_values[position - 1]
                position -= 1
            check_values[position] = clause
            filled += 1
        check_offsets[predicate + 1] = filled


@kernel
def _before(shares: Array, left: int, right: int) -> bool:
    return bool(shares[left] < shares[right] or (shares[left] == shares[right] and left < right))


@kernel
def _anchor_keys(
    anchors: Array, clause_offsets: Array, literals: Array, candidate_offsets: Array, candidates: Array
) -> tuple[Array, Array]:
    """Return the distinct keys of each predicate's anchor in ascending order, as offsets and values."""
    count = len(anchors)
    offsets = np.zeros(count + 1, dtype=np.int64)
    for predicate in range(count):
        size = 0
        if anchors[predicate] != NOTHING:
            for index in range(clause_offsets[anchors[predicate]], clause_offsets[anchors[predicate] + 1]):
                atom = literals[index] >> 1
                size += candidate_offsets[atom + 1] - candidate_offsets[atom]
        offsets[predicate + 1] = offsets[predicate] + size
    keys = np.empty(offsets[count], dtype=IDENTIFIER)
    filled = 0
    for predicate in range(count):
        first = filled
        if anchors[predicate] != NOTHING:
            for index in range(clause_offsets[anchors[predicate]], clause_offsets[anchors[predicate] + 1]):
                atom = literals[index] >> 1
                for candidate in range(candidate_offsets[atom], candidate_offsets[atom + 1]):
                    filled = _add_ascending(keys, first, filled, candidates[candidate])
        offsets[predicate] = first
    offsets[count] = filled
    return offsets, keys[:filled].copy()


@kernel
def _add_ascending(keys: Array, first: int, filled: int, key: Number) -> int:
    """Insert a key into the sorted range from `first` to `filled` unless it is there; return the new end."""
    position = filled
    while position > first and keys[position - 1] > key:
        position -= 1
    if position > first and keys[position - 1] == key:
        return filled
    for index in range(filled, position, -1):
        keys[index] = keys[index - 1]
    keys[position] = key
    return filled + 1
