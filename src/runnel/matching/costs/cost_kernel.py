"""The hot loop of cost sampling: the estimated work of each predicate for one item.

In: the keys and numbers of an item, and a plan part's anchors. Out: the predicates that the item's keys lead to, the
work of each, and whether only the evaluator can decide it. The loop checks clauses in the same order as the matcher
and stops at the first clause that cannot hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel
from runnel.matching.filters.atoms.atom_tests import TestKind

KEY, RANGE, PHRASE = int(TestKind.KEY), int(TestKind.RANGE), int(TestKind.PHRASE)

ENTRY_NANOSECONDS = 10.0
LITERAL_NANOSECONDS = 2.0
PHRASE_NANOSECONDS = 150.0
"""Estimated time to read an entry, to check a literal, and to search for a phrase in a text."""


class CostArrays(NamedTuple):
    """The arrays of a plan part that the kernel reads.

    `postings` are the predicates anchored at each key, and `checks` the clauses to check for each predicate. `kinds`
    to `highs` describe how each atom is decided. `has_formula` marks predicates that a formula decides.
    """

    posting_offsets: Array
    postings: Array
    check_offsets: Array
    checks: Array
    clause_offsets: Array
    literals: Array
    kinds: Array
    keys: Array
    slots: Array
    lows: Array
    highs: Array
    has_formula: Array


@kernel
def weigh(
    keys: Array,
    weights: Array,
    present: Array,
    number_slots: Array,
    numbers: Array,
    part: CostArrays,
    users: Array,
    predicates: Array,
    spent: Array,
    doubtful: Array,
) -> int:
    """Fill `predicates`, `spent` (nanoseconds) and `doubtful` for every posting of the keys; return their number.

    `weights` has for each key the share of the work that counts for this item, because a block of items shares the
    work. `users` counts for each atom the doubtful predicates that need it.
    """
    count = 0
    for index in range(len(keys)):
        for posting in range(part.posting_offsets[keys[index]], part.posting_offsets[keys[index] + 1]):
            predicate = part.postings[posting]
            work, is_undecided = _check(predicate, present, number_slots, numbers, part)
            predicates[count] = predicate
            spent[count] = weights[index] * (ENTRY_NANOSECONDS + work)
            doubtful[count] = is_undecided
            count += 1
            if is_undecided:
                _count_users(predicate, part, users)
    return count


@kernel
def reset_users(predicates: Array, part: CostArrays, users: Array) -> None:
    """Reset the counts of the atoms that these predicates need to zero."""
    for predicate in predicates:
        for clause in part.checks[part.check_offsets[predicate] : part.check_offsets[predicate + 1]]:
            for literal in part.literals[part.clause_offsets[clause] : part.clause_offsets[clause + 1]]:
                users[literal >> 1] = 0


@kernel
def _count_users(predicate: Number, part: CostArrays, users: Array) -> None:
    """Add the predicate to the users of each atom that the evaluator decides for it."""
    for clause in part.checks[part.check_offsets[predicate] : part.check_offsets[predicate + 1]]:
        for literal in part.literals[part.clause_offsets[clause] : part.clause_offsets[clause + 1]]:
            if part.kinds[literal >> 1] > PHRASE:
                users[literal >> 1] += 1


@kernel
def _check(
    predicate: Number, present: Array, number_slots: Array, numbers: Array, part: CostArrays
) -> tuple[Number, Number]:
    """Return the work of checking a predicate in nanoseconds, and whether only the evaluator can decide it."""
    work = 0.0
    is_undecided = part.has_formula[predicate]
    for clause in part.checks[part.check_offsets[predicate] : part.check_offsets[predicate + 1]]:
        holds, is_unknown = False, False
        for literal in part.literals[part.clause_offsets[clause] : part.clause_offsets[clause + 1]]:
            atom, negated = literal >> 1, literal & 1 == 1
            kind = part.kinds[atom]
            work += LITERAL_NANOSECONDS
            if kind == KEY:
                holds |= present[part.keys[atom]] != negated
            elif kind == RANGE:
                holds |= (
                    _within(number_slots, numbers, part.slots[atom], part.lows[atom], part.highs[atom]) != negated
                )
            elif kind == PHRASE:
                work += PHRASE_NANOSECONDS
                holds = True  # the estimated work does not depend on whether the phrase is present
            else:
                is_unknown = True
        if not holds and not is_unknown:
            return work, False
        is_undecided |= is_unknown and not holds
    return work, is_undecided


@kernel
def _within(number_slots: Array, numbers: Array, slot: Number, low: Number, high: Number) -> bool:
    """Return whether the item has a number in this slot from `low` to `high`."""
    for index in range(np.searchsorted(number_slots, slot), len(number_slots)):
        if number_slots[index] != slot:
            return False
        if low <= numbers[index] <= high:
            return True
    return False
