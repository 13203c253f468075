"""From predicates that hold to rows of query ids, ascending: the last step of a block.

Masks of predicates become masks of queries (through targets and their scopes), and these, turned around, the queries
of each item. Walking them in the order of the queries gives every item's queries in order, without sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array, offsets_of
from runnel.kernel import Number, kernel, lowest_bit, step
from runnel.matching.filters.streams.masks import (
    BLOCK,
    NOBODY,
    ONE,
    WORDS,
    ZERO,
    Mask,
    both,
    either,
    gathered,
    load,
    make_bits,
    put_bit,
    put_item,
    save,
)
from runnel.model.match import LEAP, Steps


class QueryArrays(NamedTuple):
    """The queries, in the order of their ids.

    `asking` are the living queries of each predicate, `asked` the targets of each query; a query matches only items
    after `since`, and `newest` is the last of these.
    """

    asking_offsets: Array
    asking: Array
    asked_offsets: Array
    asked: Array
    target_predicates: Array
    target_scopes: Array
    since: Array
    newest: int
    ids: Array


@kernel
def mark_scopes(sources: Array, offsets: Array, scopes: Array, masks: Array) -> None:
    """The items of a block that come from a scope's sources. `sources` are dense numbers, -1 for others."""
    masks[:] = ZERO
    for item in range(len(sources)):
        if sources[item] >= 0:
            for place in range(offsets[sources[item]], offsets[sources[item] + 1]):
                put_item(masks, scopes[place], item)


class Lines(NamedTuple):
    """Room for what each item of a block matches: steps, leaps, how many there are of both, and the last id.

    `wanted` has a bit for every query that any item of the block may match.
    """

    steps: Array
    leaps: Array
    counts: Array
    leap_counts: Array
    last: Array
    wanted: Array


def make_lines(room: int, ids: Array) -> Lines:
    """Lines with room for so many queries each, whose ids are among these."""
    span = int(ids[-1]) if len(ids) else 0
    return Lines(
        # Lines of a size that is a power of two would meet in the same places of the cache.
        steps=np.empty((BLOCK, room + 32), dtype=np.uint16),
        leaps=np.empty((BLOCK, min(room + 32, span // LEAP + 1)), dtype=np.int64),
        counts=np.zeros(BLOCK, dtype=np.int64),
        leap_counts=np.zeros(BLOCK, dtype=np.int64),
        last=np.zeros(BLOCK, dtype=np.int64),
        wanted=make_bits(len(ids)),
    )


@kernel
def turn(hits: Array, touched: Array, part: QueryArrays, scope_masks: Array, sequences: Array, lines: Lines) -> bool:
    """Turn the masks of predicates around: a line of queries, ascending, for every item of the block.

    Only predicates whose bits are in `touched` have masks. Forgets both. False, and nothing is forgotten, if a line
    has too little room.
    """
    steps, leaps, counts, leap_counts, last = lines.steps, lines.leaps, lines.counts, lines.leap_counts, lines.last
    counts[:] = 0
    leap_counts[:] = 0
    last[:] = 0
    room = steps.shape[1]
    _find_wanted(touched, part, lines.wanted)
    some_are_new = part.newest >= sequences[0]
    for word in range(len(lines.wanted)):
        queries = lines.wanted[word]
        lines.wanted[word] = ZERO
        while queries != ZERO:
            query = 64 * word + lowest_bit(queries)
            queries &= queries - ONE
            mask = NOBODY
            for place in range(part.asked_offsets[query], part.asked_offsets[query + 1]):
                target = part.asked[place]
                scope, predicate = np.uint64(part.target_scopes[target]), np.uint64(part.target_predicates[target])
                mask = either(mask, both(load(scope_masks, scope), load(hits, predicate)))
            if some_are_new and part.since[query] >= sequences[0]:
                mask = both(mask, _after(part.since[query], sequences))
            name = part.ids[query]
            for quarter in range(WORDS):
                left = mask[quarter]
                while left != ZERO:
                    item = 64 * quarter + lowest_bit(left)
                    left &= left - ONE
                    count = counts[item]
                    if count == room:
                        lines.wanted[:] = ZERO
                        return False
                    step_to = name - last[item]
                    last[item] = name
                    counts[item] = count + 1
                    if step_to >= LEAP:
                        leaps[item, leap_counts[item]] = step_to
                        leap_counts[item] += 1
                        step_to = LEAP
                    steps[item, count] = step_to
    _forget(hits, touched)
    return True


@kernel
def _find_wanted(touched: Array, part: QueryArrays, wanted: Array) -> None:
    """Set the bits of all queries that ask for a predicate that was touched."""
    for word in range(len(touched)):
        predicates = touched[word]
        while predicates != ZERO:
            predicate = 64 * word + lowest_bit(predicates)
            predicates &= predicates - ONE
            for place in range(part.asking_offsets[predicate], part.asking_offsets[predicate + 1]):
                put_bit(wanted, np.uint64(part.asking[place]))


@kernel
def _forget(hits: Array, touched: Array) -> None:
    """Empty the masks that were touched."""
    for word in range(len(touched)):
        predicates = touched[word]
        touched[word] = ZERO
        while predicates != ZERO:
            save(hits, np.uint64(64 * word + lowest_bit(predicates)), NOBODY)
            predicates &= predicates - ONE


@kernel
def _after(since: Number, sequences: Array) -> Mask:
    """The items of a block that a query was there before."""
    words = np.zeros(WORDS, dtype=np.uint64)
    for item in range(len(sequences)):
        if sequences[item] > since:
            put_item(words, ZERO, item)
    return gathered(words)


@kernel
def copy_lines(lines: Lines, items: int) -> tuple[Array, Array]:
    """The steps and the leaps of the first items, end to end."""
    steps = np.empty(lines.counts[:items].sum(), dtype=np.uint16)
    leaps = np.empty(lines.leap_counts[:items].sum(), dtype=np.int64)
    spot, leap = 0, 0
    for item in range(items):
        count, leap_count = lines.counts[item], lines.leap_counts[item]
        steps[spot : spot + count] = lines.steps[item, :count]
        leaps[leap : leap + leap_count] = lines.leaps[item, :leap_count]
        spot += count
        leap += leap_count
    return steps, leaps


def rows_of(lines: Lines, items: int) -> list[list[int]]:
    """The ids of the queries of the first items."""
    steps, leaps = copy_lines(lines, items)
    whole = joined_steps([(lines.counts[:items], lines.leap_counts[:items], steps, leaps)])
    ids = whole.ids()
    return [ids[whole.offsets[item] : whole.offsets[item + 1]].tolist() for item in range(items)]


def joined_steps(blocks: list[tuple[Array, Array, Array, Array]]) -> Steps:
    """The answers of several blocks end to end: counts, counts of leaps, steps and leaps of each."""
    kinds = (np.int64, np.int64, np.uint16, np.int64)
    counts, leap_counts, steps, leaps = (
        np.concatenate([np.empty(0, dtype=kind), *(block[which] for block in blocks)])
        for which, kind in enumerate(kinds)
    )
    return Steps(offsets_of(counts), steps, offsets_of(leap_counts), leaps)


@kernel
def merge_steps(
    offsets: Array,
    steps: Array,
    leap_offsets: Array,
    leaps: Array,
    other_offsets: Array,
    other_steps: Array,
    other_leap_offsets: Array,
    other_leaps: Array,
) -> tuple[Array, Array, Array, Array]:
    """The rows of two answers about the same items as one, each row in order."""
    rows = len(offsets) - 1
    merged_offsets = offsets + other_offsets
    merged = np.empty(len(steps) + len(other_steps), dtype=np.uint16)
    merged_leap_offsets = np.zeros(rows + 1, dtype=np.int64)
    merged_leaps = np.empty(len(merged), dtype=np.int64)
    spot, leap = 0, 0
    for row in range(rows):
        left, right = offsets[row], other_offsets[row]
        left_leap, right_leap = leap_offsets[row], other_leap_offsets[row]
        left_id, left_leap = _next_id(0, left, offsets[row + 1], steps, left_leap, leaps)
        right_id, right_leap = _next_id(0, right, other_offsets[row + 1], other_steps, right_leap, other_leaps)
        last = 0
        while left < offsets[row + 1] or right < other_offsets[row + 1]:
            if left_id <= right_id:
                step = left_id - last
                left += 1
                left_id, left_leap = _next_id(left_id, left, offsets[row + 1], steps, left_leap, leaps)
            else:
                step = right_id - last
                right += 1
                right_id, right_leap = _next_id(
                    right_id, right, other_offsets[row + 1], other_steps, right_leap, other_leaps
                )
            last += step
            if step >= LEAP:
                merged_leaps[leap] = step
                leap += 1
                step = LEAP
            merged[spot] = step
            spot += 1
        merged_leap_offsets[row + 1] = leap
    return merged_offsets, merged, merged_leap_offsets, merged_leaps[:leap].copy()


@step
def _next_id(
    last: Number, place: Number, end: Number, steps: Array, leap: Number, leaps: Array
) -> tuple[Number, Number]:
    """The id at a place, where `last` is the one before, and the row's next leap; after the end, the largest id."""
    if place >= end:
        return np.int64(0x7FFFFFFFFFFFFFFF), leap
    if steps[place] == LEAP:
        return np.int64(last + leaps[leap]), leap + 1
    return np.int64(last + steps[place]), leap
