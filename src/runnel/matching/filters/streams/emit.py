"""From predicates that hold to rows of query ids, ascending: the last step of a block.

Masks of predicates become masks of queries (through targets and their scopes), and these, turned around, the queries
of each item. Walking the masks in the order of the queries gives every item's queries in order, without sorting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.kernel import Number, kernel, lowest_bit
from runnel.matching.filters.streams.masks import (
    BLOCK,
    NOBODY,
    ONE,
    WORDS,
    ZERO,
    both,
    either,
    load,
    put_item,
    save,
    some,
)
from runnel.plan.arrays import Array


class QueryArrays(NamedTuple):
    """What leads from predicates to targets and their scopes, and from these to queries."""

    target_offsets: Array
    targets: Array
    target_scopes: Array
    query_offsets: Array
    queries: Array
    alive: Array
    since: Array
    ids: Array


@kernel
def mark_scopes(sources: Array, offsets: Array, scopes: Array, masks: Array) -> None:
    """The items of a block that come from a scope's sources. `sources` are dense numbers, -1 for others."""
    masks[:] = ZERO
    for item in range(len(sources)):
        if sources[item] >= 0:
            for place in range(offsets[sources[item]], offsets[sources[item] + 1]):
                put_item(masks, scopes[place], item)


@kernel
def expand(hits: Array, part: QueryArrays, scope_masks: Array, sequences: Array, found: Array) -> None:
    """Turn the masks of predicates into masks of queries, and forget the former."""
    for predicate in range(len(part.target_offsets) - 1):
        mask = load(hits, np.uint64(predicate))
        if not some(mask):
            continue
        save(hits, np.uint64(predicate), NOBODY)
        for place in range(part.target_offsets[predicate], part.target_offsets[predicate + 1]):
            target = part.targets[place]
            reached = both(mask, load(scope_masks, np.uint64(part.target_scopes[target])))
            for spot in range(part.query_offsets[target], part.query_offsets[target + 1]):
                query = np.uint64(part.queries[spot])
                if part.alive[query]:
                    save(found, query, either(load(found, query), reached))
                    if part.since[query] >= sequences[0]:
                        _forget_earlier(found, query, part.since[query], sequences)


@kernel
def _forget_earlier(found: Array, query: Number, since: Number, sequences: Array) -> None:
    """An item matches only queries that were there before it."""
    for item in range(len(sequences)):
        if sequences[item] <= since:
            found[(query << np.uint64(2)) | np.uint64(item >> 6)] &= ~(ONE << np.uint64(item & 63))


@kernel
def turn(found: Array, lines: Array, counts: Array) -> None:
    """Turn the masks of queries around: a line of queries (by place) for every item. Forgets the masks."""
    counts[:] = 0
    for place in range(len(found)):
        mask = found[place]
        if mask == ZERO:
            continue
        found[place] = ZERO
        first = 64 * (place % WORDS)
        while mask != ZERO:
            item = first + lowest_bit(mask)
            mask &= mask - ONE
            lines[item, counts[item]] = place // WORDS
            counts[item] += 1


@kernel
def add_lengths(counts: Array, offsets: Array, first_row: int) -> None:
    """Add the lengths of a block's lines to the offsets of its rows."""
    for row in range(first_row, min(first_row + BLOCK, len(offsets) - 1)):
        offsets[row + 1] = offsets[row] + counts[row - first_row]


@kernel
def copy_lines(lines: Array, counts: Array, items: int) -> Array:
    """The lines of the first items end to end."""
    places = np.empty(counts[:items].sum(), dtype=np.int32)
    spot = 0
    for item in range(items):
        places[spot : spot + counts[item]] = lines[item, : counts[item]]
        spot += counts[item]
    return places


@kernel
def merge_rows(offsets: Array, queries: Array, other_offsets: Array, other_queries: Array) -> tuple[Array, Array]:
    """The rows of two answers about the same items, each row in order."""
    merged_offsets = offsets + other_offsets
    merged = np.empty(len(queries) + len(other_queries), dtype=queries.dtype)
    for row in range(len(offsets) - 1):
        left, right, spot = offsets[row], other_offsets[row], merged_offsets[row]
        while left < offsets[row + 1] or right < other_offsets[row + 1]:
            if right == other_offsets[row + 1] or (left < offsets[row + 1] and queries[left] < other_queries[right]):
                merged[spot] = queries[left]
                left += 1
            else:
                merged[spot] = other_queries[right]
                right += 1
            spot += 1
    return merged_offsets, merged
