"""Kernels of kin: predicates and an index of those that may be roots in, for each one that subsumes it out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step

NOBODY = -1
_SEARCHED = 4096
"""How many entries of the index are looked at for one predicate, at most."""

_SOUGHT = 16_384
"""How many literals are sought in clauses for one predicate, about: clauses may be long where entries are few."""

_SHORT = 8
"""Literals of a clause that are gone through one by one; where there are more, the place is searched for first."""

_ENTRIES, _LITERALS = 0, 1
"""Where `looked` has its numbers."""

_SPREAD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(58)
_ONE, _NOTHING = np.uint64(1), np.uint64(0)


class ClauseTable(NamedTuple):
    """Clauses, predicates, and the literals that literals imply, each as offsets and values.

    The literals of a clause are ascending.
    """

    clause_offsets: Array
    literals: Array
    predicate_offsets: Array
    clauses: Array
    wider_offsets: Array
    wider: Array


class Listed(NamedTuple):
    """The index: predicates by each literal of the clause under which they are listed, the most general first.

    `masks` are those of three clauses of a predicate: the one that it is listed under and two more; all bits are set
    where it has fewer. A mask has a bit for every literal of a clause. Literals that imply one another share theirs,
    and others may: if a clause implies another, then its bits are among those of the other.
    """

    offsets: Array
    predicates: Array
    masks: Array


@kernel
def literal_bits(wider_offsets: Array, wider: Array) -> Array:
    """A bit for every literal; those that are related, over whatever others, have the same."""
    count = len(wider_offsets) - 1
    leaders = np.arange(count)
    for literal in range(count):
        for place in range(wider_offsets[literal], wider_offsets[literal + 1]):
            one, other = _leader(leaders, literal), _leader(leaders, wider[place])
            leaders[max(one, other)] = min(one, other)
    bits = np.empty(count, dtype=np.uint64)
    for literal in range(count):
        bits[literal] = _ONE << ((np.uint64(_leader(leaders, literal) + 1) * _SPREAD) >> _SHIFT)
    return bits


@step
def _leader(leaders: Array, one: Number) -> Number:
    while leaders[one] != one:
        leaders[one] = leaders[leaders[one]]
        one = leaders[one]
    return one


@kernel
def clause_masks(offsets: Array, literals: Array, bits: Array) -> Array:
    """The masks of all clauses."""
    masks = np.zeros(len(offsets) - 1, dtype=np.uint64)
    for clause in range(len(masks)):
        for place in range(offsets[clause], offsets[clause + 1]):
            masks[clause] |= bits[literals[place]]
    return masks


@step
def _has(literal: Number, table: ClauseTable, clause: Number) -> Number:
    begin, end = table.clause_offsets[clause], table.clause_offsets[clause + 1]
    while end - begin > _SHORT:
        middle = (begin + end) >> 1
        if table.literals[middle] <= literal:
            begin = middle
        else:
            end = middle
    while begin < end and table.literals[begin] != literal:
        begin += 1
    return begin < end


@step
def _implies(narrow: Number, wide: Number, table: ClauseTable) -> Number:
    """Whether each literal of the narrow clause, or one that it implies, is in the wide clause."""
    if narrow == wide:
        return True
    for place in range(table.clause_offsets[narrow], table.clause_offsets[narrow + 1]):
        literal = table.literals[place]
        found = _has(literal, table, wide)
        for other in range(table.wider_offsets[literal], table.wider_offsets[literal + 1]):
            if found:
                break
            found = _has(table.wider[other], table, wide)
        if not found:
            return False
    return True


@step
def _subsumes(wide: Number, narrow: Number, table: ClauseTable, looked: Array) -> Number:
    """Whether each clause of the wide predicate is implied by one of the narrow predicate; no if that takes too long.

    So somebody may be missed who is above, and nobody is found who is not.
    """
    for place in range(table.predicate_offsets[wide], table.predicate_offsets[wide + 1]):
        found = False
        sought = 0
        for other in range(table.predicate_offsets[narrow], table.predicate_offsets[narrow + 1]):
            clause = table.clauses[other]
            sought += table.clause_offsets[clause + 1] - table.clause_offsets[clause]
            if _implies(clause, table.clauses[place], table):
                found = True
                break
        looked[_LITERALS] += sought
        if not found or looked[_LITERALS] > _SOUGHT:
            return False
    return True


@step
def _is_enough(looked: Array) -> Number:
    """Whether the search for one predicate ends here, whatever else there is."""
    return looked[_ENTRIES] > _SEARCHED or looked[_LITERALS] > _SOUGHT


@step
def _reach(literal: Number, table: ClauseTable, offsets: Array) -> Number:
    """How many entries of the index have a literal, or one that it implies."""
    reach = offsets[literal + 1] - offsets[literal]
    for other in range(table.wider_offsets[literal], table.wider_offsets[literal + 1]):
        reach += offsets[table.wider[other] + 1] - offsets[table.wider[other]]
    return reach


@step
def _rarest(clause: Number, table: ClauseTable, offsets: Array) -> Number:
    """The literal of a clause that leads to the fewest entries of the index, or NOBODY."""
    rarest: Number = NOBODY
    least = 0
    for place in range(table.clause_offsets[clause], table.clause_offsets[clause + 1]):
        literal = np.int64(table.literals[place])
        reach = _reach(literal, table, offsets)
        if rarest == NOBODY or reach < least:
            rarest, least = literal, reach
    return rarest


@step
def _may_imply(own: Array, mask: Number) -> Number:
    """Whether one of some clauses may imply another, by their masks."""
    found = False
    for place in range(len(own)):
        found = found or own[place] & ~mask == _NOTHING
    return found


@step
def _above(narrow: Number, clause: Number, own: Array, table: ClauseTable, listed: Listed, looked: Array) -> Number:
    """A predicate listed under a clause that one clause of the narrow predicate implies, and that subsumes it.

    `own` has the masks of the narrow predicate's clauses, this one's first. Of two predicates that say the same, only
    the first is above the other.
    """
    masks = listed.masks
    rarest = _rarest(clause, table, listed.offsets)
    if rarest == NOBODY:
        return NOBODY
    for which in range(table.wider_offsets[rarest] - 1, table.wider_offsets[rarest + 1]):
        literal = rarest if which < table.wider_offsets[rarest] else np.int64(table.wider[which])
        for place in range(listed.offsets[literal], listed.offsets[literal + 1]):
            looked[_ENTRIES] += 1
            if _is_enough(looked):
                return NOBODY
            if own[0] & ~masks[place, 0] != _NOTHING:
                continue
            if not (_may_imply(own, masks[place, 1]) and _may_imply(own, masks[place, 2])):
                continue
            wide = listed.predicates[place]
            if wide == narrow or not _subsumes(wide, narrow, table, looked):
                continue
            if wide < narrow or not _subsumes(narrow, wide, table, looked):
                return wide
    return NOBODY


@kernel
def find_parents(table: ClauseTable, listed: Listed, masks: Array) -> tuple[Array, int, int]:
    """For every predicate one that subsumes it, or NOBODY; how much was looked at, and how often too much."""
    count = len(table.predicate_offsets) - 1
    parents = np.full(count, NOBODY, dtype=np.int64)
    looked = np.zeros(2, dtype=np.int64)
    total, given_up = 0, 0
    for narrow in range(count):
        looked[:] = 0
        first, last = table.predicate_offsets[narrow], table.predicate_offsets[narrow + 1]
        own = np.empty(last - first, dtype=np.uint64)
        for place in range(first, last):
            own[place - first] = masks[table.clauses[place]]
        for place in range(first, last):
            own[0], own[place - first] = own[place - first], own[0]
            parents[narrow] = _above(narrow, table.clauses[place], own, table, listed, looked)
            if parents[narrow] != NOBODY:
                break
        total += looked[_ENTRIES]
        given_up += _is_enough(looked)
    return parents, total, given_up


@kernel
def follow(parents: Array) -> Array:
    """The last that each leads to by parents; of those that lead round in a circle, the first by number."""
    count = len(parents)
    roots = np.full(count, NOBODY, dtype=np.int64)
    entered = np.full(count, NOBODY, dtype=np.int64)
    for first in range(count):
        one = first
        while roots[one] == NOBODY and entered[one] != first and parents[one] != NOBODY:
            entered[one] = first
            one = parents[one]
        root = roots[one]
        if root == NOBODY:
            root = one
            if parents[one] != NOBODY:
                other = parents[one]
                while other != one:
                    root = min(root, other)
                    other = parents[other]
        roots[one] = root
        roots[root] = root
        one = first
        while roots[one] == NOBODY:
            roots[one] = root
            one = parents[one]
    return roots
