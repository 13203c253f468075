"""Check the format of streams that were read from a file, because kernels do not check bounds."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel
from runnel.matching.filters.streams.shared_groups import MAX_LEVELS
from runnel.matching.filters.streams.write_streams import ENTRY, FORMULA, GROUPED, HEAD, KIND, MISSING, MIXED, OTHER

BROKEN = -1
"""The result for a stream that does not have the format that `stream_layout` describes."""


@kernel
def count_doubts(offsets: Array, stream: Array, limits: Array) -> int:
    """Return the number of entries that the walk can leave undecided, or BROKEN if the format is wrong.

    `limits` are the numbers of predicates, keys and extras.
    """
    doubts = 0
    for number in range(len(offsets) - 1):
        first, last = offsets[number], offsets[number + 1]
        if first == last:
            continue
        if last - first < HEAD + 1:
            return BROKEN
        direct, joined, inner = np.int64(stream[first]), np.int64(stream[first + 1]), np.int64(0)
        position = first + HEAD
        if direct & GROUPED:
            direct, inner = direct ^ GROUPED, np.int64(stream[position])
            position += 1
        tails = position + direct + joined + inner
        if tails > last:
            return BROKEN
        stream_doubts = _count_in_groups(stream, first, position, direct, joined, tails, last, limits)
        if stream_doubts == BROKEN:
            return BROKEN
        doubts += stream_doubts
    return doubts


@kernel
def _count_in_groups(
    stream: Array,
    first: Number,
    position: Number,
    direct: Number,
    joined: Number,
    tails: Number,
    last: Number,
    limits: Array,
) -> int:
    """Count the doubts of a stream from its direct entries up to the tails, and check that groups nest properly."""
    doubts, depth = 0, 0
    ends = np.empty(MAX_LEVELS + 1, np.int64)
    ends[0] = tails
    while True:
        entry_doubts = BROKEN
        if joined % ENTRY == 0 and position + direct + joined <= ends[depth]:
            entry_doubts = _count_in_entries(stream, first, position, direct, joined, tails, last, limits)
        if entry_doubts == BROKEN:
            return BROKEN
        doubts += entry_doubts
        position += direct + joined
        while depth > 0 and position == ends[depth]:
            depth -= 1
        if position == tails:
            return doubts
        if depth == MAX_LEVELS or position + ENTRY + 1 > ends[depth] or not _are_keys(stream, position, limits[1]):
            return BROKEN
        size, direct = np.int64(stream[position]), np.int64(stream[position + 1])
        joined = np.int64(stream[position + ENTRY])
        end = position + ENTRY + size
        if size < 1 or end > ends[depth]:
            return BROKEN
        depth += 1
        ends[depth] = end
        position += ENTRY + 1


@kernel
def _are_keys(stream: Array, entry: Number, keys: Number) -> bool:
    return bool(np.all(stream[entry + 2 : entry + ENTRY] <= keys + 1))


@kernel
def _count_in_entries(
    stream: Array,
    first: Number,
    position: Number,
    direct: Number,
    joined: Number,
    tails: Number,
    last: Number,
    limits: Array,
) -> int:
    doubts = 0
    for index in range(position, position + direct):
        if stream[index] >= limits[0]:
            return BROKEN
    for entry in range(position + direct, position + direct + joined, ENTRY):
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
def _count_in_tail(stream: Array, position: Number, last: int, keys: int, extras: int) -> int:
    """Return 1 if a tail can leave its predicate undecided, 0 if it cannot, or BROKEN."""
    end = position + 1 + np.int64(stream[position])
    position += 1
    if end > last:
        return BROKEN
    unknown = 0
    while position < end:
        count, kind = np.int64(stream[position]) & ((1 << KIND) - 1), np.int64(stream[position]) >> KIND
        position += 1
        if (
            position + count > end
            or kind > FORMULA
            or (kind == MISSING and count != 1)
            or (kind == FORMULA and count)
        ):
            return BROKEN
        if kind == FORMULA:
            unknown = 1
        for index in range(position, position + count):
            number = np.int64(stream[index])
            if kind == MIXED:
                if number >> 3 >= (keys if number & 6 == 0 else extras):
                    return BROKEN
                if (number >> 1) & 3 == OTHER:
                    unknown = 1
            elif number >= keys:
                return BROKEN
        position += count
    return unknown
