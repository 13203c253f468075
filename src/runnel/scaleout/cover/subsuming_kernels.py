"""Kernels that find for each predicate another one that subsumes it.

In: predicates, and an index of those that may be roots. Out: for each predicate a parent, and from these the roots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step

NOBODY = -1
_MAX_ENTRIES = 4096
"""Limit for the entries of the index that are checked for one predicate."""

_MAX_LITERALS = 16_384
"""Approximate limit for the literals that are looked up for one predicate, since clauses may be long."""

_LINEAR_SEARCH = 8
"""Up to this many literals of a clause are searched one by one; longer ranges are halved first."""

_ENTRIES, _LITERALS = 0, 1
"""Indexes of the counters in `work`."""

_SPREAD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(58)
_ONE, _NO_BITS = np.uint64(1), np.uint64(0)


class ClauseTable(NamedTuple):
    """Clauses, predicates, and the literals that each literal implies (`wider`), as offsets and values.

    The literals of a clause are in ascending order.
    """

    clause_offsets: Array
    literals: Array
    predicate_offsets: Array
    clauses: Array
    wider_offsets: Array
    wider: Array


class Listed(NamedTuple):
    """The index: predicates by each literal of the clause under position they are listed, the most general first.

    `masks` has the masks of three clauses of a predicate: the one that it is listed under, and two others. All bits
    are set if there are fewer. The mask of a clause has a bit for each of its literals. Literals that imply one
    another share a bit, and others may do so by accident. If a clause implies another, its bits are among those of
    the other.
    """

    offsets: Array
    predicates: Array
    masks: Array


@kernel
def literal_bits(wider_offsets: Array, wider: Array) -> Array:
    """Return a bit for every literal. Literals that are connected by implications have the same bit."""
    count = len(wider_offsets) - 1
    leaders = np.arange(count)
    for literal in range(count):
        for index in range(wider_offsets[literal], wider_offsets[literal + 1]):
            leader, wider_leader = _find(leaders, literal), _find(leaders, wider[index])
            leaders[max(leader, wider_leader)] = min(leader, wider_leader)
    bits = np.empty(count, dtype=np.uint64)
    for literal in range(count):
        bits[literal] = _ONE << ((np.uint64(_find(leaders, literal) + 1) * _SPREAD) >> _SHIFT)
    return bits


@step
def _find(leaders: Array, literal: Number) -> Number:
    while leaders[literal] != literal:
        leaders[literal] = leaders[leaders[literal]]
        literal = leaders[literal]
    return literal


@kernel
def clause_masks(offsets: Array, literals: Array, bits: Array) -> Array:
    """Return the masks of all clauses."""
    masks = np.zeros(len(offsets) - 1, dtype=np.uint64)
    for clause in range(len(masks)):
        for index in range(offsets[clause], offsets[clause + 1]):
            masks[clause] |= bits[literals[index]]
    return masks


@step
def _contains(literal: Number, table: ClauseTable, clause: Number) -> Number:
    begin, end = table.clause_offsets[clause], table.clause_offsets[clause + 1]
    while end - begin > _LINEAR_SEARCH:
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
    """Return whether each literal of the narrow clause, or a literal that it implies, is in the wide clause."""
    if narrow == wide:
        return True
    for index in range(table.clause_offsets[narrow], table.clause_offsets[narrow + 1]):
        literal = table.literals[index]
        is_implied = _contains(literal, table, wide)
        for other in range(table.wider_offsets[literal], table.wider_offsets[literal + 1]):
            if is_implied:
                break
            is_implied = _contains(table.wider[other], table, wide)
        if not is_implied:
            return False
    return True


@step
def _subsumes(wide: Number, narrow: Number, table: ClauseTable, work: Array) -> Number:
    """Return whether each clause of the wide predicate is implied by a clause of the narrow predicate.

    Return False if this takes too long. So True is always right, but a subsuming predicate may be missed.
    """
    for index in range(table.predicate_offsets[wide], table.predicate_offsets[wide + 1]):
        is_implied = False
        literals = 0
        for other in range(table.predicate_offsets[narrow], table.predicate_offsets[narrow + 1]):
            clause = table.clauses[other]
            literals += table.clause_offsets[clause + 1] - table.clause_offsets[clause]
            if _implies(clause, table.clauses[index], table):
                is_implied = True
                break
        work[_LITERALS] += literals
        if not is_implied or work[_LITERALS] > _MAX_LITERALS:
            return False
    return True


@step
def _is_over_limit(work: Array) -> Number:
    """Return whether the search for one predicate has reached a limit."""
    return work[_ENTRIES] > _MAX_ENTRIES or work[_LITERALS] > _MAX_LITERALS


@step
def _count_entries(literal: Number, table: ClauseTable, offsets: Array) -> Number:
    """Return the number of entries of the index for a literal and those that it implies."""
    count = offsets[literal + 1] - offsets[literal]
    for other in range(table.wider_offsets[literal], table.wider_offsets[literal + 1]):
        count += offsets[table.wider[other] + 1] - offsets[table.wider[other]]
    return count


@step
def _rarest(clause: Number, table: ClauseTable, offsets: Array) -> Number:
    """Return the literal of a clause with the fewest entries in the index, or NOBODY if the clause is empty."""
    rarest: Number = NOBODY
    least = 0
    for index in range(table.clause_offsets[clause], table.clause_offsets[clause + 1]):
        literal = np.int64(table.literals[index])
        count = _count_entries(literal, table, offsets)
        if rarest == NOBODY or count < least:
            rarest, least = literal, count
    return rarest


@step
def _may_imply(own: Array, mask: Number) -> Number:
    """Return whether any clause with one of the masks `own` may imply a clause with the mask `mask`."""
    result = False
    for index in range(len(own)):
        result = result or own[index] & ~mask == _NO_BITS
    return result


@step
def _find_subsuming(
    narrow: Number, clause: Number, own: Array, table: ClauseTable, listed: Listed, work: Array
) -> Number:
    """Return a predicate that subsumes `narrow` and is listed under a clause that `clause` implies, or NOBODY.

    `own` has the masks of the clauses of `narrow`, that of `clause` first. Of two equivalent predicates, only the
    first counts as subsuming the other.
    """
    masks = listed.masks
    rarest = _rarest(clause, table, listed.offsets)
    if rarest == NOBODY:
        return NOBODY
    for position in range(table.wider_offsets[rarest] - 1, table.wider_offsets[rarest + 1]):
        literal = rarest if position < table.wider_offsets[rarest] else np.int64(table.wider[position])
        for index in range(listed.offsets[literal], listed.offsets[literal + 1]):
            work[_ENTRIES] += 1
            if _is_over_limit(work):
                return NOBODY
            if own[0] & ~masks[index, 0] != _NO_BITS:
                continue
            if not (_may_imply(own, masks[index, 1]) and _may_imply(own, masks[index, 2])):
                continue
            wide = listed.predicates[index]
            if wide == narrow or not _subsumes(wide, narrow, table, work):
                continue
            if wide < narrow or not _subsumes(narrow, wide, table, work):
                return wide
    return NOBODY


@kernel
def find_parents(table: ClauseTable, listed: Listed, masks: Array) -> tuple[Array, int, int]:
    """Return for every predicate one that subsumes it, or NOBODY; the entries checked; and how many hit a limit."""
    count = len(table.predicate_offsets) - 1
    parents = np.full(count, NOBODY, dtype=np.int64)
    work = np.zeros(2, dtype=np.int64)
    total, limited = 0, 0
    for narrow in range(count):
        work[:] = 0
        first, last = table.predicate_offsets[narrow], table.predicate_offsets[narrow + 1]
        own = np.empty(last - first, dtype=np.uint64)
        for index in range(first, last):
            own[index - first] = masks[table.clauses[index]]
        for index in range(first, last):
            own[0], own[index - first] = own[index - first], own[0]
            parents[narrow] = _find_subsuming(narrow, table.clauses[index], own, table, listed, work)
            if parents[narrow] != NOBODY:
                break
        total += work[_ENTRIES]
        limited += _is_over_limit(work)
    return parents, total, limited


@kernel
def follow(parents: Array) -> Array:
    """Return the last ancestor of each predicate. If parents form a cycle, return the smallest number in it."""
    count = len(parents)
    roots = np.full(count, NOBODY, dtype=np.int64)
    entered = np.full(count, NOBODY, dtype=np.int64)
    for first in range(count):
        node = first
        while roots[node] == NOBODY and entered[node] != first and parents[node] != NOBODY:
            entered[node] = first
            node = parents[node]
        root = roots[node]
        if root == NOBODY:
            root = node
            if parents[node] != NOBODY:
                other = parents[node]
                while other != node:
                    root = min(root, other)
                    other = parents[other]
        roots[node] = root
        roots[root] = root
        node = first
        while roots[node] == NOBODY:
            roots[node] = root
            node = parents[node]
    return roots
