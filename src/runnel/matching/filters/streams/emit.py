"""Convert the satisfied predicates of a block to the ascending query ids of each item: the last step of a block.

The masks of predicates are converted to masks of queries through targets and their scopes, and these are transposed
to the queries of each item. Reading the masks in the order of the queries makes sorting unnecessary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array, offsets_of
from runnel.kernel import Number, kernel, lowest_bit, step
from runnel.matching.filters.streams.masks import (
    BLOCK,
    EMPTY_MASK,
    ONE,
    WORDS,
    ZERO,
    Mask,
    both,
    either,
    load,
    make_bits,
    put_bit,
    put_item,
    save,
    to_mask,
)
from runnel.model.match import LEAP, Steps


class QueryArrays(NamedTuple):
    """The queries, in the order of their ids.

    `predicate_queries` are the queries of each predicate that were not removed, `query_targets` the targets of each
    query. A query matches only items after `since`, and `newest` is the maximum of `since`.
    """

    predicate_query_offsets: Array
    predicate_queries: Array
    query_target_offsets: Array
    query_targets: Array
    target_predicates: Array
    target_scopes: Array
    since: Array
    newest: int
    ids: Array


@kernel
def mark_scopes(sources: Array, offsets: Array, scopes: Array, masks: Array) -> None:
    """Mark in the mask of each scope the items of a block that come from its sources.

    `sources` are the indices of the items' sources, or -1 for feeds that are not sources of the part.
    """
    masks[:] = ZERO
    for item in range(len(sources)):
        if sources[item] >= 0:
            for index in range(offsets[sources[item]], offsets[sources[item] + 1]):
                put_item(masks, scopes[index], item)


class BlockMatches(NamedTuple):
    """Buffers for the query ids of each item of a block: steps, leaps, the numbers of both, and the last id.

    `candidates` has a bit for every query that any item of the block may match.
    """

    steps: Array
    leaps: Array
    counts: Array
    leap_counts: Array
    last: Array
    candidates: Array


def make_block_matches(capacity: int, ids: Array) -> BlockMatches:
    """Allocate block matches for `capacity` queries per item; `ids` are the ids of all queries."""
    max_id = int(ids[-1]) if len(ids) else 0
    return BlockMatches(
        # 32 more entries per row, because rows whose size is a power of two would conflict in the CPU cache.
        steps=np.empty((BLOCK, capacity + 32), dtype=np.uint16),
        leaps=np.empty((BLOCK, min(capacity + 32, max_id // LEAP + 1)), dtype=np.int64),
        counts=np.zeros(BLOCK, dtype=np.int64),
        leap_counts=np.zeros(BLOCK, dtype=np.int64),
        last=np.zeros(BLOCK, dtype=np.int64),
        candidates=make_bits(len(ids)),
    )


@kernel
def collect_queries(
    hits: Array, touched: Array, part: QueryArrays, scope_masks: Array, sequences: Array, rows: BlockMatches
) -> bool:
    """Fill the block matches with the ascending ids of the queries that each item of the block matches.

    Only predicates whose bits are set in `touched` have hits. Clear both and return True. If a row is too short,
    return False and leave both unchanged.
    """
    steps, leaps, counts, leap_counts, last = rows.steps, rows.leaps, rows.counts, rows.leap_counts, rows.last
    counts[:] = 0
    leap_counts[:] = 0
    last[:] = 0
    capacity = steps.shape[1]
    _find_candidates(touched, part, rows.candidates)
    has_new_queries = part.newest >= sequences[0]
    for word in range(len(rows.candidates)):
        queries = rows.candidates[word]
        rows.candidates[word] = ZERO
        while queries != ZERO:
            query = 64 * word + lowest_bit(queries)
            queries &= queries - ONE
            mask = EMPTY_MASK
            for index in range(part.query_target_offsets[query], part.query_target_offsets[query + 1]):
                target = part.query_targets[index]
                scope, predicate = np.uint64(part.target_scopes[target]), np.uint64(part.target_predicates[target])
                mask = either(mask, both(load(scope_masks, scope), load(hits, predicate)))
            if has_new_queries and part.since[query] >= sequences[0]:
                mask = both(mask, _after(part.since[query], sequences))
            identifier = part.ids[query]
            for mask_word in range(WORDS):
                items = mask[mask_word]
                while items != ZERO:
                    item = 64 * mask_word + lowest_bit(items)
                    items &= items - ONE
                    count = counts[item]
                    if count == capacity:
                        rows.candidates[:] = ZERO
                        return False
                    difference = identifier - last[item]
                    last[item] = identifier
                    counts[item] = count + 1
                    if difference >= LEAP:
                        leaps[item, leap_counts[item]] = difference
                        leap_counts[item] += 1
                        difference = LEAP
                    steps[item, count] = difference
    _clear_hits(hits, touched)
    return True


@kernel
def _find_candidates(touched: Array, part: QueryArrays, candidates: Array) -> None:
    """Set the bits of all queries that use a touched predicate."""
    for word in range(len(touched)):
        predicates = touched[word]
        while predicates != ZERO:
            predicate = 64 * word + lowest_bit(predicates)
            predicates &= predicates - ONE
            for index in range(part.predicate_query_offsets[predicate], part.predicate_query_offsets[predicate + 1]):
                put_bit(candidates, np.uint64(part.predicate_queries[index]))


@kernel
def _clear_hits(hits: Array, touched: Array) -> None:
    """Clear the masks of the touched predicates, and their bits."""
    for word in range(len(touched)):
        predicates = touched[word]
        touched[word] = ZERO
        while predicates != ZERO:
            save(hits, np.uint64(64 * word + lowest_bit(predicates)), EMPTY_MASK)
            predicates &= predicates - ONE


@kernel
def _after(since: Number, sequences: Array) -> Mask:
    """Return a mask of the items with a sequence after `since`."""
    words = np.zeros(WORDS, dtype=np.uint64)
    for item in range(len(sequences)):
        if sequences[item] > since:
            put_item(words, ZERO, item)
    return to_mask(words)


@kernel
def copy_steps(rows: BlockMatches, items: int) -> tuple[Array, Array]:
    """Return the steps and the leaps of the first `items` rows, concatenated."""
    steps = np.empty(rows.counts[:items].sum(), dtype=np.uint16)
    leaps = np.empty(rows.leap_counts[:items].sum(), dtype=np.int64)
    start, leap_start = 0, 0
    for item in range(items):
        count, leap_count = rows.counts[item], rows.leap_counts[item]
        steps[start : start + count] = rows.steps[item, :count]
        leaps[leap_start : leap_start + leap_count] = rows.leaps[item, :leap_count]
        start += count
        leap_start += leap_count
    return steps, leaps


def query_rows(rows: BlockMatches, items: int) -> list[list[int]]:
    """Return the ids of the queries of the first `items` rows."""
    steps, leaps = copy_steps(rows, items)
    block = concatenate_blocks([(rows.counts[:items], rows.leap_counts[:items], steps, leaps)])
    ids = block.ids()
    return [ids[block.offsets[item] : block.offsets[item + 1]].tolist() for item in range(items)]


def concatenate_blocks(blocks: list[tuple[Array, Array, Array, Array]]) -> Steps:
    """Concatenate blocks, each given as counts, counts of leaps, steps and leaps."""
    types = (np.int64, np.int64, np.uint16, np.int64)
    counts, leap_counts, steps, leaps = (
        np.concatenate([np.empty(0, dtype=dtype), *(block[field] for block in blocks)])
        for field, dtype in enumerate(types)
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
    """Merge the query ids of two plan parts for the same items, so that each row is in ascending order."""
    rows = len(offsets) - 1
    merged_offsets = offsets + other_offsets
    merged = np.empty(len(steps) + len(other_steps), dtype=np.uint16)
    merged_leap_offsets = np.zeros(rows + 1, dtype=np.int64)
    merged_leaps = np.empty(len(merged), dtype=np.int64)
    index, leap = 0, 0
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
            merged[index] = step
            index += 1
        merged_leap_offsets[row + 1] = leap
    return merged_offsets, merged, merged_leap_offsets, merged_leaps[:leap].copy()


@step
def _next_id(
    last: Number, index: Number, end: Number, steps: Array, leap: Number, leaps: Array
) -> tuple[Number, Number]:
    """Return the id at an index, and the index of the row's next leap. `last` is the preceding id.

    After the end of the row, the id is the largest integer.
    """
    if index >= end:
        return np.int64(0x7FFFFFFFFFFFFFFF), leap
    if steps[index] == LEAP:
        return np.int64(last + leaps[leap]), leap + 1
    return np.int64(last + steps[index]), leap
