"""The form of streams that were read from a file, checked: a kernel does not look for itself."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel
from runnel.matching.filters.streams.shared_groups import MOST_LEVELS
from runnel.matching.filters.streams.write_streams import ENTRY, FORMULA, GROUPED, HEAD, KIND, MISSING, MIXED, OTHER

BROKEN = -1


@kernel
def count_doubts(offsets: Array, stream: Array, limits: Array) -> int:
    """How many entries can be in doubt; BROKEN unless every number is within (predicates, keys, extras)."""
    doubts = 0
    for number in range(len(offsets) - 1):
        first, last = offsets[number], offsets[number + 1]
        if first == last:
            continue
        if last - first < HEAD + 1:
            return BROKEN
        direct, joined, inner = np.int64(stream[first]), np.int64(stream[first + 1]), np.int64(0)
        spot = first + HEAD
        if direct & GROUPED:
            direct, inner = direct ^ GROUPED, np.int64(stream[spot])
            spot += 1
        tails = spot + direct + joined + inner
        if tails > last:
            return BROKEN
        found = _count_in_groups(stream, first, spot, direct, joined, tails, last, limits)
        if found == BROKEN:
            return BROKEN
        doubts += found
    return doubts


@kernel
def _count_in_groups(
    stream: Array,
    first: Number,
    spot: Number,
    direct: Number,
    joined: Number,
    tails: Number,
    last: Number,
    limits: Array,
) -> int:
    """A stream from its direct entries up to the tails: all whole, groups inside one another and not too deep."""
    doubts, depth = 0, 0
    ends = np.empty(MOST_LEVELS + 1, np.int64)
    ends[0] = tails
    while True:
        found = BROKEN
        if joined % ENTRY == 0 and spot + direct + joined <= ends[depth]:
            found = _count_in_entries(stream, first, spot, direct, joined, tails, last, limits)
        if found == BROKEN:
            return BROKEN
        doubts += found
        spot += direct + joined
        while depth > 0 and spot == ends[depth]:
            depth -= 1
        if spot == tails:
            return doubts
        if depth == MOST_LEVELS or spot + ENTRY + 1 > ends[depth] or not _are_keys(stream, spot, limits[1]):
            return BROKEN
        size, direct = np.int64(stream[spot]), np.int64(stream[spot + 1])
        joined = np.int64(stream[spot + ENTRY])
        end = spot + ENTRY + size
        if size < 1 or end > ends[depth]:
            return BROKEN
        depth += 1
        ends[depth] = end
        spot += ENTRY + 1


@kernel
def _are_keys(stream: Array, entry: Number, keys: Number) -> bool:
    return bool(np.all(stream[entry + 2 : entry + ENTRY] <= keys + 1))


@kernel
def _count_in_entries(
    stream: Array,
    first: Number,
    spot: Number,
    direct: Number,
    joined: Number,
    tails: Number,
    last: Number,
    limits: Array,
) -> int:
    doubts = 0
    for place in range(spot, spot + direct):
        if stream[place] >= limits[0]:
            return BROKEN
    for entry in range(spot + direct, spot + direct + joined, ENTRY):
        if stream[entry] >= limits[0] or not _are_keys(stream, entry, limits[1]):
            return BROKEN
        tail, unknown = first + np.int64(stream[entry + 1]), 0
        if tail != first:
            unknown = _count_in_tail(stream, tail, last, limits[1], limits[2]) if tails <= tail < last else BROKEN
        if unknown == BROKEN:
            return BROKEN
        doubts += unknown
    return doubts


@kernel
def _count_in_tail(stream: Array, spot: Number, last: int, keys: int, extras: int) -> int:
    """1 if a tail can leave its predicate in doubt, 0 if not."""
    end = spot + 1 + np.int64(stream[spot])
    spot += 1
    if end > last:
        return BROKEN
    unknown = 0
    while spot < end:
        count, kind = np.int64(stream[spot]) & ((1 << KIND) - 1), np.int64(stream[spot]) >> KIND
        spot += 1
        if spot + count > end or kind > FORMULA or (kind == MISSING and count != 1) or (kind == FORMULA and count):
            return BROKEN
        if kind == FORMULA:
            unknown = 1
        for place in range(spot, spot + count):
            number = np.int64(stream[place])
            if kind == MIXED:
                if number >> 3 >= (keys if number & 6 == 0 else extras):
                    return BROKEN
                if (number >> 1) & 3 == OTHER:
                    unknown = 1
            elif number >= keys:
                return BROKEN
        spot += count
    return unknown
