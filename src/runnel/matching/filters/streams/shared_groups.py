"""Trees inside streams: what many predicates of a stream share is asked once, above them (RoSeS §5).

In: the predicates of every stream, and how many items of a block are expected to satisfy each clause. Out: *groups*,
trees of clauses. A group is a clause of few keys that several predicates of a stream, or of a group, have; where no
item of the block is left after it, the whole group is skipped. It is taken only where that is expected to save
entries.

A stream is walked for a block of items at once, so the question is not which items satisfy a clause but whether any
does. Grouping pays under hot keys, whose streams are long, and by clauses that few items satisfy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.filters.atoms.atom_layout import NOTHING
from runnel.matching.filters.streams.masks import BLOCK

MOST_LEVELS = 8
"""Groups lie inside one another at most so deep."""

_FEWEST = 4
"""Fewer predicates than this are not worth looking at."""

_NODE = 2.0
"""What the clause of a group costs, in entries: it is one, and takes room; so two predicates are no group."""


class PredicateGroups(NamedTuple):
    """The first groups are the streams themselves; the others have a clause and a parent, which comes before them.

    `entry_groups` is the innermost group of every entry.
    """

    parents: Array
    clauses: Array
    entry_groups: Array


class OpenClauses(NamedTuple):
    """The clauses left to check of every predicate, the part of items that satisfies each, and which may group."""

    check_offsets: Array
    checks: Array
    shares: Array
    usable: Array


def expected_holders(shares: Array) -> Array:
    """How many items of a full block have a key, given that one has."""
    return np.asarray(np.maximum(1.0, BLOCK * shares))


@kernel
def group_predicates(
    offsets: Array, predicates: Array, holders: Array, asked: OpenClauses, trees: bool
) -> PredicateGroups:
    """The groups of all streams, level by level."""
    streams = len(offsets) - 1
    room = streams + len(predicates) // 4 + 1
    parents, clauses = np.full(room, NOTHING, np.int64), np.full(room, NOTHING, np.int64)
    starts, ends, expected = np.zeros(room, np.int64), np.zeros(room, np.int64), np.ones(room)
    starts[:streams], ends[:streams], expected[:streams] = offsets[:-1], offsets[1:], holders
    entry_groups = np.empty(len(predicates), np.int64)
    for group in range(streams):
        entry_groups[offsets[group] : offsets[group + 1]] = group
    members = np.arange(len(predicates))
    choices = np.empty(len(predicates), np.int64)
    counts = np.zeros(len(asked.shares), np.int64)
    first, count = 0, streams
    for _ in range(MOST_LEVELS if trees else 0):
        last = count
        for group in range(first, last):
            inside = members[starts[group] : ends[group]]
            if len(inside) < _FEWEST:
                continue
            chosen = choices[starts[group] : ends[group]]
            if not _choose(inside, chosen, predicates, group, parents, clauses, expected[group], asked, counts):
                continue
            before = count
            while count + len(inside) > len(parents):
                parents, clauses = _grown(parents), _grown(clauses)
                starts, ends, expected = _grown(starts), _grown(ends), _grown(expected)
            count = _divide(inside, chosen, counts, clauses, ends, count)
            spot = starts[group]
            for new in range(before, count):
                parents[new] = group
                expected[new] = max(1.0, expected[group] * asked.shares[clauses[new]])
                size = ends[new]
                starts[new], ends[new] = spot, spot + size
                entry_groups[members[spot : spot + size]] = new
                spot += size
        first = last
    return PredicateGroups(parents[:count].copy(), clauses[:count].copy(), entry_groups)


@kernel
def _grown(array: Array) -> Array:
    """An array twice as long."""
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
    asked: OpenClauses,
    counts: Array,
) -> bool:
    """Choose for each predicate the clause by which it is grouped, or NOTHING; whether there is any group.

    Each takes the clause that would gain most if all that have it took it. Then it is known what was taken, and each
    takes the best of that, so that few groups are too small; these are dissolved. `counts` end as the groups' sizes.
    """
    for place in range(len(inside)):
        predicate = predicates[inside[place]]
        chosen[place] = NOTHING
        for clause in asked.checks[asked.check_offsets[predicate] : asked.check_offsets[predicate + 1]]:
            counts[clause] += 1
    _vote(inside, chosen, predicates, group, parents, clauses, holders, asked, counts)
    _count_chosen(inside, chosen, predicates, asked, counts)
    _vote(inside, chosen, predicates, group, parents, clauses, holders, asked, counts)
    _count_chosen(inside, chosen, predicates, asked, counts)
    some = False
    for place in range(len(inside)):
        clause = chosen[place]
        if clause != NOTHING:
            if _gain(counts[clause], holders, asked.shares[clause]) > 0.0:
                some = True
            else:
                counts[clause] -= 1
                chosen[place] = NOTHING
    return some


@kernel
def _vote(
    inside: Array,
    chosen: Array,
    predicates: Array,
    group: int,
    parents: Array,
    clauses: Array,
    holders: float,
    asked: OpenClauses,
    counts: Array,
) -> None:
    """Give every predicate the clause of the largest gain, as the counts have it."""
    for place in range(len(inside)):
        predicate = predicates[inside[place]]
        best, most = NOTHING, 0.0
        for clause in asked.checks[asked.check_offsets[predicate] : asked.check_offsets[predicate + 1]]:
            if counts[clause] < 2 or not asked.usable[clause]:
                continue
            gain = _gain(counts[clause], holders, asked.shares[clause])
            if gain > most and not _asked_above(clause, group, parents, clauses):
                best, most = clause, gain
        chosen[place] = best


@kernel
def _count_chosen(inside: Array, chosen: Array, predicates: Array, asked: OpenClauses, counts: Array) -> None:
    """Count anew: of each clause, the predicates that have chosen it instead of those that have it."""
    for place in range(len(inside)):
        predicate = predicates[inside[place]]
        for clause in asked.checks[asked.check_offsets[predicate] : asked.check_offsets[predicate + 1]]:
            counts[clause] = 0
    for clause in chosen:
        if clause != NOTHING:
            counts[clause] += 1


@step
def _gain(count: Number, holders: Number, share: Number) -> Number:
    """The entries that a group of so many predicates saves: all of them, whenever no item is left for it."""
    nobody = (1.0 - min(1.0, share)) ** holders
    return count * nobody - _NODE


@kernel
def _asked_above(clause: Number, group: int, parents: Array, clauses: Array) -> bool:
    while group != NOTHING:
        if clauses[group] == clause:
            return True
        group = parents[group]
    return False


@kernel
def _divide(inside: Array, chosen: Array, counts: Array, clauses: Array, sizes: Array, count: int) -> int:
    """Number the new groups, from `count` on, and bring their predicates to the front, group by group.

    `sizes` gets how many predicates each has. The counts are zero afterwards. Gives the new count of groups.
    """
    before = count
    order = np.empty(len(inside), np.int64)
    for place in range(len(inside)):
        clause = chosen[place]
        if clause != NOTHING and counts[clause] > 0:
            clauses[count], sizes[count] = clause, counts[clause]
            counts[clause] = -count
            count += 1
    spots = np.zeros(count - before + 1, np.int64)
    for new in range(before, count):
        spots[new - before + 1] = spots[new - before] + sizes[new]
    for place in range(len(inside)):
        which = count - before if chosen[place] == NOTHING else -counts[chosen[place]] - before
        order[spots[which]] = inside[place]
        spots[which] += 1
    for new in range(before, count):
        counts[clauses[new]] = 0
    inside[:] = order
    return count
