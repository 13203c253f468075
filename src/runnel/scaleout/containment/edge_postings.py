"""Patterns listed under the edges that they have: a hash table of lists, and the kernels that go through it.

A key is an edge in which some nodes are left out; a pattern listed under a key is a candidate, whatever the hash,
because everyone who finds it checks it. *Access lists* have a pattern under one edge of its own, its variables left
out: whoever has the pattern's edges finds it there. *Edge lists* have it under all its edges with nodes left
out: whoever is laid into it finds it under each edge of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.scaleout.containment.compare_demands import NO, YES
from runnel.scaleout.containment.homomorphism import MOST, NOBODY, StoredPatterns, count_homomorphisms

OUTSIDE, ROOT, MERGER, BELOW = 0, 1, 2, 3
"""What a pattern is: none, a root of its own, a root that stands for others, or below a root."""

_ALL = 7
LISTED = (0, 6, 5, 3)
"""Which nodes edge lists leave out: none, or all but the subject, the label or the object (bits 1, 2 and 4)."""

POSTINGS, KEYS, _MASKS = 0, 1, 2
LOOKED, CHECKED, WORK = 3, 4, 5
"""Where `counts` has its numbers; of listed patterns: how many were looked at, how many laid, what that took."""

ENDLESS = 1 << 62
"""As much work as it takes."""

_LAYING = 16
"""What it takes to lay a pattern, beside the edges that are looked at for it."""

_FIRST, _SECOND, _THIRD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_ONE, _SHIFT, _EMPTY = np.uint64(1), np.uint64(29), np.uint64(0)


class Lists(NamedTuple):
    """Keys in an open hash table, each with its first posting and their count; a posting is a pattern and the next.

    `counts` has how many postings and keys there are, which ways to leave nodes out occur, and three counters.
    Searches mark what they have looked at with a stamp of their own.
    """

    keys: Array
    heads: Array
    lengths: Array
    patterns: Array
    nexts: Array
    counts: Array

    @staticmethod
    def empty(keys: int = 64, postings: int = 64) -> Lists:
        """Lists with room for keys (half as many as slots, a power of two) and postings."""
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
    """The key of an edge without the nodes whose bits are set; never the mark of an empty slot."""
    hashed = np.uint64(mask + 1)
    for column in range(3):
        node = np.uint64(0) if mask & (1 << column) else np.uint64(edges[row, column] + 1)
        hashed = (hashed ^ node) * _FIRST
        hashed ^= hashed >> _SHIFT
        hashed *= _SECOND if column == 1 else _THIRD
    return hashed | _ONE


@step
def _slot(keys: Array, key: Number) -> Number:
    """The slot of a key, or the empty one where it would be."""
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
    """The bits of an edge's variables."""
    mask = 0
    for column in range(3):
        if edges[row, column] < 0:
            mask |= 1 << column
    return mask


@step
def list_access(held: StoredPatterns, lists: Lists, pattern: Number) -> None:
    """List a pattern under its edge with the most terms, and among several under the one that leads to the fewest."""
    own = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    best, best_terms, best_length = np.uint64(0), -1, 0
    best_mask = 0
    for place in range(first, first + count):
        mask = _mask(own, place)
        terms = 3 - (mask & 1) - ((mask >> 1) & 1) - ((mask >> 2) & 1)
        if terms < best_terms:
            continue
        key = _key(own, place, mask)
        slot = _slot(lists.keys, key)
        length = lists.lengths[slot] if lists.keys[slot] == key else 0
        if terms > best_terms or length < best_length:
            best, best_terms, best_length, best_mask = key, terms, length, mask
    lists.counts[_MASKS] |= 1 << best_mask
    _put(lists.keys, lists.heads, lists.lengths, lists.patterns, lists.nexts, lists.counts, best, pattern)


@step
def list_edges(held: StoredPatterns, lists: Lists, pattern: Number) -> None:
    """List a pattern under all its edges: whole where they have no variables, and with one term each."""
    own = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    keys, heads, lengths, patterns, nexts, counts = lists
    for place in range(first, first + count):
        variables = _mask(own, place)
        for mask in LISTED:
            if mask & variables == variables:
                _put(keys, heads, lengths, patterns, nexts, counts, _key(own, place, mask), pattern)


@kernel
def widen(lists: Lists, wider: Lists) -> None:
    """Put the keys into a table with more slots; the postings are copied already."""
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
    """How many roots and mergers can be laid into edges `begin` to `end`; their numbers are written into `found`.

    Where the edges are a publication's, frozen is NOBODY, and what is not decided within the steps is written as
    -1 - number. Where they are those of a frozen pattern, one that contains it is enough (the paper's `contained`,
    §4.2): a root if there is one, or else mergers, of which all are found. The search ends after `most` work.
    """
    keys, heads, patterns, nexts, counts = lists.keys, lists.heads, lists.patterns, lists.nexts, lists.counts
    last = counts[WORK] + most
    size = 0
    for place in range(begin, end):
        variables = _mask(targets, place)
        for mask in range(_ALL + 1):
            if not counts[_MASKS] & (1 << mask) or mask & variables != variables:
                continue
            key = _key(targets, place, mask)
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
                answer, tried = count_homomorphisms(held, pattern, targets, begin, end, frozen, MOST)
                counts[WORK] += _LAYING + tried
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
    """How many roots and mergers a pattern contains, as far as `most` work tells; their numbers go to `found`.

    Whatever a pattern contains has all its edges without variables, and the terms of the others. So it is enough to
    go through what is listed under the rarest of these; under nothing if there are only variables.
    """
    own = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    best, fewest = -1, np.int64(1) << 40
    for place in range(first, first + count):
        variables = _mask(own, place)
        for mask in LISTED:
            if mask & variables != variables:
                continue
            key = _key(own, place, mask)
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
        answer, tried = count_homomorphisms(held, pattern, own, begin, end, other, MOST)
        counts[WORK] += _LAYING + tried
        if answer == YES:
            found[size] = other
            size += 1
    return size


@kernel
def list_pattern(held: StoredPatterns, access: Lists, edges: Lists, pattern: Number) -> None:
    """List a pattern in both kinds of lists."""
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
    """Find where a pattern that lies nowhere belongs: -1 where `found` begins with its container, if that is wanted.

    Otherwise it becomes a root, listed unless it is so already, and the answer is how many roots and mergers it
    contains. One call does all, because handing over the arrays takes longer than the search. After `most` work it
    becomes a root with what was found until then.
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
