"""Group the predicates of a stream by shared clauses, so that a shared clause is checked once (RoSeS §5).

In: the predicates of every stream, and the expected share of items that satisfy each clause. Out: nested *groups*. A
group consists of predicates of a stream, or of another group, that share a clause of few keys. If no item of a block
satisfies the clause, the whole group is skipped. A group is made only if that is expected to save entries.

A stream is read for a block of items at once, so a group is skipped only if none of the items satisfies its clause.
Grouping therefore pays in the long streams of frequent keys, with clauses that few items satisfy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.filters.atoms.atom_layout import NOTHING
from runnel.matching.filters.streams.masks import BLOCK

MAX_LEVELS = 8
"""Maximum depth of nested groups."""

_MIN_PREDICATES = 4
"""Fewer predicates than this are not grouped."""

_GROUP_COST = 2.0
"""The cost of a group in entries, for reading its clause and for memory. Two predicates are thus never a group."""


class PredicateGroups(NamedTuple):
    """The groups of all streams. The first groups are the streams themselves.

    The others have a clause and a parent, which has a smaller number. `entry_groups` is the innermost group of every
    entry.
    """

    parents: Array
    clauses: Array
    entry_groups: Array


class OpenClauses(NamedTuple):
    """The clauses that remain to be checked for every predicate, the share of items that satisfies each clause, and a
    mask of the clauses that a group may have."""

    check_offsets: Array
    checks: Array
    shares: Array
    usable: Array


def expected_holders(shares: Array) -> Array:
    """Return the expected number of items of a full block that have a key, if at least one has it."""
    return np.asarray(np.maximum(1.0, BLOCK * shares))


@kernel
def group_predicates(
    offsets: Array, predicates: Array, holders: Array, open_clauses: OpenClauses, trees: bool
) -> PredicateGroups:
    """Return the groups of all streams, which are computed level by level. Without `trees`, only the streams."""
    streams = len(offsets) - 1
    capacity = streams + len(predicates) // 4 + 1
    parents, clauses = np.full(capacity, NOTHING, np.int64), np.full(capacity, NOTHING, np.int64)
    starts, ends, expected = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), np.ones(capacity)
    starts[:streams], ends[:streams], expected[:streams] = offsets[:-1], offsets[1:], holders
    entry_groups = np.empty(len(predicates), np.int64)
    for group in range(streams):
        entry_groups[offsets[group] : offsets[group + 1]] = group
    members = np.arange(len(predicates))
    choices = np.empty(len(predicates), np.int64)
    counts = np.zeros(len(open_clauses.shares), np.int64)
    first, count = 0, streams
    for _ in range(MAX_LEVELS if trees else 0):
        last = count
        for group in range(first, last):
            inside = members[starts[group] : ends[group]]
            if len(inside) < _MIN_PREDICATES:
                continue
            chosen = choices[starts[group] : ends[group]]
            if not _choose(
                inside, chosen, predicates, group, parents, clauses, expected[group], open_clauses, counts
            ):
                continue
            before = count
            while count + len(inside) > len(parents):
                parents, clauses = _enlarge(parents), _enlarge(clauses)
                starts, ends, expected = _enlarge(starts), _enlarge(ends), _enlarge(expected)
            count = _divide(inside, chosen, counts, clauses, ends, count)
            next_start = starts[group]
            for new in range(before, count):
                parents[new] = group
                expected[new] = max(1.0, expected[group] * open_clauses.shares[clauses[new]])
                size = ends[new]
                starts[new], ends[new] = next_start, next_start + size
                entry_groups[members[next_start : next_start + size]] = new
                next_start += size
        first = last
    return PredicateGroups(parents[:count].copy(), clauses[:count].copy(), entry_groups)


@kernel
def _enlarge(array: Array) -> Array:
    """Return a copy of an array with twice the length."""
    return np.concatenate((array, np.full(len(array), NOTHING, array.dtype)))


@kernel
def _choose(
    inside: Array,
    chosen: Array,
    predicates: Array,
    group: int,
    parents: Array,
    clauses: Array,
    holders: float,
    open_clauses: OpenClauses,
    counts: Array,
) -> bool:
    """Choose for each predicate of a group the clause to group it by, or NOTHING. Return whether there is any group.

    In the first round, each predicate chooses the clause with the largest gain if all predicates with the clause
    chose it. In the second round, it chooses again among the chosen clauses, so that few groups are too small. Groups
    that are still too small are dissolved. At the end, `counts` has the sizes of the groups.
    """
    for index in range(len(inside)):
        predicate = predicates[inside[index]]
        chosen[index] = NOTHING
        for clause in open_clauses.checks[
            open_clauses.check_offsets[predicate] : open_clauses.check_offsets[predicate + 1]
        ]:
            counts[clause] += 1
    _vote(inside, chosen, predicates, group, parents, clauses, holders, open_clauses, counts)
    _count_chosen(inside, chosen, predicates, open_clauses, counts)
    _vote(inside, chosen, predicates, group, parents, clauses, holders, open_clauses, counts)
    _count_chosen(inside, chosen, predicates, open_clauses, counts)
    has_groups = False
    for index in range(len(inside)):
        clause = chosen[index]
        if clause != NOTHING:
            if _gain(counts[clause], holders, open_clauses.shares[clause]) > 0.0:
                has_groups = True
            else:
                counts[clause] -= 1
                chosen[index] = NOTHING
    return has_groups


@kernel
def _vote(
    inside: Array,
    chosen: Array,
    predicates: Array,
    group: int,
    parents: Array,
    clauses: Array,
    holders: float,
    open_clauses: OpenClauses,
    counts: Array,
) -> None:
    """Choose for each predicate the clause with the largest gain, according to the counts."""
    for index in range(len(inside)):
        predicate = predicates[inside[index]]
        best, best_gain = NOTHING, 0.0
        for clause in open_clauses.checks[
            open_clauses.check_offsets[predicate] : open_clauses.check_offsets[predicate + 1]
        ]:
            if counts[clause] < 2 or not open_clauses.usable[clause]:
                continue
            gain = _gain(counts[clause], holders, open_clauses.shares[clause])
            if gain > best_gain and not _is_checked_above(clause, group, parents, clauses):
                best, best_gain = clause, gain
        chosen[index] = best


@kernel
def _count_chosen(inside: Array, chosen: Array, predicates: Array, open_clauses: OpenClauses, counts: Array) -> None:
    """Set the count of each clause to the number of predicates that chose it, not of all that have it."""
    for index in range(len(inside)):
        predicate = predicates[inside[index]]
        for clause in open_clauses.checks[
            open_clauses.check_offsets[predicate] : open_clauses.check_offsets[predicate + 1]
        ]:
            counts[clause] = 0
    for clause in chosen:
        if clause != NOTHING:
            counts[clause] += 1


@step
def _gain(count: Number, holders: Number, share: Number) -> Number:
    """Return the expected savings of a group of `count` predicates in entries. It is skipped if no item qualifies."""
    skip_chance = (1.0 - min(1.0, share)) ** holders
    return count * skip_chance - _GROUP_COST


@kernel
def _is_checked_above(clause: Number, group: int, parents: Array, clauses: Array) -> bool:
    while group != NOTHING:
        if clauses[group] == clause:
            return True
        group = parents[group]
    return False


@kernel
def _divide(inside: Array, chosen: Array, counts: Array, clauses: Array, sizes: Array, count: int) -> int:
    """Number the new groups from `count` on, and sort the predicates by group, ungrouped ones last.

    Write the number of predicates of each new group to `sizes`, and reset `counts` to zero. Return the new number of
    groups.
    """
    before = count
    order = np.empty(len(inside), np.int64)
    for index in range(len(inside)):
        clause = chosen[index]
        if clause != NOTHING and counts[clause] > 0:
            clauses[count], sizes[count] = clause, counts[clause]
            counts[clause] = -count
            count += 1
    next_indices = np.zeros(count - before + 1, np.int64)
    for new in range(before, count):
        next_indices[new - before + 1] = next_indices[new - before] + sizes[new]
    for index in range(len(inside)):
        group = count - before if chosen[index] == NOTHING else -counts[chosen[index]] - before
        order[next_indices[group]] = inside[index]
        next_indices[group] += 1
    for new in range(before, count):
        counts[clauses[new]] = 0
    inside[:] = order
    return count
