"""Posting lists of patterns by their edges: a hash table of lists, and the kernels that search them.

A key is an edge without some of its nodes. A pattern listed under a key is only a candidate, because every search
checks it, so hash collisions do no harm. *Access lists* contain a pattern under one of its edges, without the
variables of that edge. They serve to find the patterns that map into given edges. *Edge lists* contain a pattern
under all of its edges, with nodes left out. They serve to find the patterns into which a given pattern maps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.scaleout.containment.compare_demands import NO, YES
from runnel.scaleout.containment.homomorphism import MAX_TRIED_EDGES, NOBODY, StoredPatterns, count_homomorphisms

OUTSIDE, ROOT, MERGER, BELOW = 0, 1, 2, 3
"""Kinds of patterns: not in the index, a root, a merger, or below a root."""

_ALL = 7
LISTED = (0, 6, 5, 3)
"""Which nodes edge lists leave out: none, or all but the subject, the label or the object (bits 1, 2 and 4)."""

POSTINGS, KEYS, _MASKS = 0, 1, 2
LOOKED, CHECKED, WORK = 3, 4, 5
"""Indexes in `counts`. The last three count the listed patterns read and checked, and the work for that."""

ENDLESS = 1 << 62
"""No limit for the work."""

_CHECK_COST = 16
"""The work for checking a pattern, in addition to the edges that are tried."""

_FIRST, _SECOND, _THIRD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_ONE, _SHIFT, _EMPTY = np.uint64(1), np.uint64(29), np.uint64(0)


class Lists(NamedTuple):
    """An open hash table of keys, each with its first posting and the number of postings.

    A posting consists of a pattern and the next posting. `counts` contains the number of postings and keys, the masks
    of left-out nodes that occur, and three counters. Each search marks the patterns that it has read with its own
    stamp.
    """

    keys: Array
    heads: Array
    lengths: Array
    patterns: Array
    nexts: Array
    counts: Array

    @staticmethod
    def empty(keys: int = 64, postings: int = 64) -> Lists:
        """Create empty lists with `keys` slots, a power of two, and room for postings."""
        return Lists(
            np.zeros(keys, np.uint64),
            np.zeros(keys, np.int32),
            np.zeros(keys, np.int32),
            np.zeros(postings, np.int32),
            np.zeros(postings, np.int32),
            np.zeros(6, np.int64),
        )


@step
def _key(edges: Array, row: Number, mask: Number) -> Number:
    """Return the key of an edge without the nodes whose bits are set. It differs from the mark of an empty slot."""
    hashed = np.uint64(mask + 1)
    for column in range(3):
        node = np.uint64(0) if mask & (1 << column) else np.uint64(edges[row, column] + 1)
        hashed = (hashed ^ node) * _FIRST
        hashed ^= hashed >> _SHIFT
        hashed *= _SECOND if column == 1 else _THIRD
    return hashed | _ONE


@step
def _slot(keys: Array, key: Number) -> Number:
    """Return the slot of a key, or the empty slot where it would be inserted."""
    last = np.uint64(len(keys) - 1)
    slot = (key >> _SHIFT) & last
    while keys[slot] != key and keys[slot] != _EMPTY:
        slot = (slot + _ONE) & last
    return np.int64(slot)


@step
def _put(
    keys: Array,
    heads: Array,
    lengths: Array,
    patterns: Array,
    nexts: Array,
    counts: Array,
    key: Number,
    pattern: Number,
) -> None:
    slot = _slot(keys, key)
    if keys[slot] == _EMPTY:
        keys[slot] = key
        heads[slot] = -1
        counts[KEYS] += 1
    elif patterns[heads[slot]] == pattern:
        return
    posting = counts[POSTINGS]
    counts[POSTINGS] += 1
    patterns[posting] = pattern
    nexts[posting] = heads[slot]
    heads[slot] = posting
    lengths[slot] += 1


@step
def _mask(edges: Array, row: Number) -> Number:
    """Return the bits of an edge's variables."""
    mask = 0
    for column in range(3):
        if edges[row, column] < 0:
            mask |= 1 << column
    return mask


@step
def list_access(held: StoredPatterns, lists: Lists, pattern: Number) -> None:
    """List a pattern under its edge with the most terms. Of several, choose the one with the shortest list."""
    own = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    best, best_terms, best_length = np.uint64(0), -1, 0
    best_mask = 0
    for row in range(first, first + count):
        mask = _mask(own, row)
        terms = 3 - (mask & 1) - ((mask >> 1) & 1) - ((mask >> 2) & 1)
        if terms < best_terms:
            continue
        key = _key(own, row, mask)
        slot = _slot(lists.keys, key)
        length = lists.lengths[slot] if lists.keys[slot] == key else 0
        if terms > best_terms or length < best_length:
            best, best_terms, best_length, best_mask = key, terms, length, mask
    lists.counts[_MASKS] |= 1 << best_mask
    _put(lists.keys, lists.heads, lists.lengths, lists.patterns, lists.nexts, lists.counts, best, pattern)


@step
def list_edges(held: StoredPatterns, lists: Lists, pattern: Number) -> None:
    """List a pattern under all its edges: under the whole edge if it has no variables, and under each single term."""
    own = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    keys, heads, lengths, patterns, nexts, counts = lists
    for row in range(first, first + count):
        variables = _mask(own, row)
        for mask in LISTED:
            if mask & variables == variables:
                _put(keys, heads, lengths, patterns, nexts, counts, _key(own, row, mask), pattern)


@kernel
def widen(lists: Lists, wider: Lists) -> None:
    """Insert the keys into a table with more slots. The postings have been copied before."""
    for old in range(len(lists.keys)):
        if lists.keys[old] != _EMPTY:
            slot = _slot(wider.keys, lists.keys[old])
            wider.keys[slot] = lists.keys[old]
            wider.heads[slot] = lists.heads[old]
            wider.lengths[slot] = lists.lengths[old]


@kernel
def seek_roots(
    held: StoredPatterns,
    lists: Lists,
    kinds: Array,
    marks: Array,
    stamp: Number,
    targets: Array,
    begin: Number,
    end: Number,
    frozen: Number,
    most: Number,
    found: Array,
) -> Number:
    """Return how many roots and mergers map into the edges `begin` to `end`, and write their numbers to `found`.

    If the edges belong to a publication, `frozen` is NOBODY, and undecided patterns are written as -1 - number. If
    they belong to a frozen pattern, the search ends with the first root that contains it (the paper's `contained`,
    §4.2); without such a root, all mergers that contain it are found. The search ends after `most` work.
    """
    keys, heads, patterns, nexts, counts = lists.keys, lists.heads, lists.patterns, lists.nexts, lists.counts
    last = counts[WORK] + most
    size = 0
    for row in range(begin, end):
        variables = _mask(targets, row)
        for mask in range(_ALL + 1):
            if not counts[_MASKS] & (1 << mask) or mask & variables != variables:
                continue
            key = _key(targets, row, mask)
            slot = _slot(keys, key)
            posting = heads[slot] if keys[slot] == key else -1
            while posting >= 0:
                pattern = patterns[posting]
                posting = nexts[posting]
                counts[LOOKED] += 1
                counts[WORK] += 1
                if counts[WORK] > last:
                    return size
                if marks[pattern] == stamp or (kinds[pattern] != ROOT and kinds[pattern] != MERGER):
                    continue
                marks[pattern] = stamp
                counts[CHECKED] += 1
                answer, tried = count_homomorphisms(held, pattern, targets, begin, end, frozen, MAX_TRIED_EDGES)
                counts[WORK] += _CHECK_COST + tried
                if answer == NO or (answer != YES and frozen != NOBODY):
                    continue
                if frozen != NOBODY and kinds[pattern] == ROOT:
                    found[0] = pattern
                    return 1
                found[size] = pattern if answer == YES else -1 - pattern
                size += 1
    return size


@step
def seek_contained(
    held: StoredPatterns,
    lists: Lists,
    kinds: Array,
    marks: Array,
    stamp: Number,
    pattern: Number,
    most: Number,
    found: Array,
) -> Number:
    """Return how many roots and mergers a pattern contains, and write their numbers to `found`.

    A contained pattern has all edges of the pattern without variables, and the terms of all others. So it is enough
    to search the shortest list of these keys, or all patterns if there are only variables. The search ends after
    `most` work.
    """
    own = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    best, fewest = -1, np.int64(1) << 40
    for row in range(first, first + count):
        variables = _mask(own, row)
        for mask in LISTED:
            if mask & variables != variables:
                continue
            key = _key(own, row, mask)
            slot = _slot(lists.keys, key)
            if lists.keys[slot] != key:
                return 0
            if lists.lengths[slot] < fewest:
                best, fewest = slot, np.int64(lists.lengths[slot])
            if mask == 0:
                break
    size = 0
    patterns, nexts, counts = lists.patterns, lists.nexts, lists.counts
    last = counts[WORK] + most
    posting = np.int64(lists.heads[best]) if best >= 0 else np.int64(len(kinds) - 1)
    while posting >= 0:
        other = np.int64(patterns[posting]) if best >= 0 else posting
        posting = np.int64(nexts[posting]) if best >= 0 else posting - 1
        counts[LOOKED] += 1
        counts[WORK] += 1
        if counts[WORK] > last:
            return size
        if other == pattern or marks[other] == stamp or (kinds[other] != ROOT and kinds[other] != MERGER):
            continue
        marks[other] = stamp
        counts[CHECKED] += 1
        begin = held.places[other, 0]
        end = begin + held.places[other, 1]
        answer, tried = count_homomorphisms(held, pattern, own, begin, end, other, MAX_TRIED_EDGES)
        counts[WORK] += _CHECK_COST + tried
        if answer == YES:
            found[size] = other
            size += 1
    return size


@kernel
def list_pattern(held: StoredPatterns, access: Lists, edges: Lists, pattern: Number) -> None:
    """List a pattern in the access lists and in the edge lists."""
    list_access(held, access, pattern)
    list_edges(held, edges, pattern)


@kernel
def place_pattern(
    held: StoredPatterns,
    access: Lists,
    edges: Lists,
    kinds: Array,
    marks: Array,
    stamp: Number,
    pattern: Number,
    above: Number,
    listed: Number,
    most: Number,
    found: Array,
) -> Number:
    """Find the row of a pattern without a parent. If `above` is set and a pattern contains it, return -1.

    In that case `found` starts with the container. Otherwise list the pattern, unless it is `listed`, and return the
    number of roots and mergers that it contains. After `most` work, use what was found until then. All of this is one
    kernel, because passing the arrays takes longer than the search.
    """
    begin = held.places[pattern, 0]
    end = begin + held.places[pattern, 1]
    before = access.counts[WORK]
    if above and seek_roots(held, access, kinds, marks, stamp, held.edges, begin, end, pattern, most, found) > 0:
        return -1
    left = most - (access.counts[WORK] - before)
    count = seek_contained(held, edges, kinds, marks, stamp + 1, pattern, left, found)
    if not listed:
        list_access(held, access, pattern)
        list_edges(held, edges, pattern)
    return count
