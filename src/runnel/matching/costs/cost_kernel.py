"""What one item makes the plan do, predicate by predicate: the hot loop of cost sampling.

In: the keys and numbers of an item, and a plan part's anchors. Out: the predicates that the item leads to, the work
that each takes, and whether only the evaluator can decide it. The work is counted as the matcher does it: a clause
is looked at only while those before it can hold.
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
"""What it takes to come by an entry, to look at a literal, and to look for a phrase in a text."""


class CostArrays(NamedTuple):
    """What is read of a plan part: who is found by a key, what is then checked, and how atoms are known."""

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
    """Fill the last three for every posting of the keys; gives how many there are.

    `weights` say how much of an entry's work is this item's: a block of items shares it. `users` counts, by atom, the
    doubtful predicates that need it.
    """
    count = 0
    for number in range(len(keys)):
        for place in range(part.posting_offsets[keys[number]], part.posting_offsets[keys[number] + 1]):
            predicate = part.postings[place]
            work, is_open = _check(predicate, present, number_slots, numbers, part)
            predicates[count] = predicate
            spent[count] = weights[number] * (ENTRY_NANOSECONDS + work)
            doubtful[count] = is_open
            count += 1
            if is_open:
                _use(predicate, part, users)
    return count


@kernel
def forget_users(predicates: Array, part: CostArrays, users: Array) -> None:
    """Set the counts of the atoms that these predicates need to nothing again."""
    for predicate in predicates:
        for clause in part.checks[part.check_offsets[predicate] : part.check_offsets[predicate + 1]]:
            for literal in part.literals[part.clause_offsets[clause] : part.clause_offsets[clause + 1]]:
                users[literal >> 1] = 0


@kernel
def _use(predicate: Number, part: CostArrays, users: Array) -> None:
    for clause in part.checks[part.check_offsets[predicate] : part.check_offsets[predicate + 1]]:
        for literal in part.literals[part.clause_offsets[clause] : part.clause_offsets[clause + 1]]:
            if part.kinds[literal >> 1] > PHRASE:
                users[literal >> 1] += 1


@kernel
def _check(
    predicate: Number, present: Array, number_slots: Array, numbers: Array, part: CostArrays
) -> tuple[Number, Number]:
    """The work of checking a predicate, and whether it is left to the evaluator."""
    work = 0.0
    is_open = part.has_formula[predicate]
    for clause in part.checks[part.check_offsets[predicate] : part.check_offsets[predicate + 1]]:
        holds, unknown = False, False
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
                holds = True  # whether the words stand side by side makes no difference to what was done
            else:
                unknown = True
        if not holds and not unknown:
            return work, False
        is_open |= unknown and not holds
    return work, is_open


@kernel
def _within(number_slots: Array, numbers: Array, slot: Number, low: Number, high: Number) -> bool:
    for place in range(np.searchsorted(number_slots, slot), len(number_slots)):
        if number_slots[place] != slot:
            return False
        if low <= numbers[place] <= high:
            return True
    return False
