"""Kernels: sets of elements, listed for every predicate within a budget, and brought together where equal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel

_WHOLE = 6
"""Of so many own clauses all subsets are listed; of more, those of the most selective ones, single ones and pairs."""

_SEARCHED = 512
"""How many predicates are looked at for one, at most, to find those that subsume it."""


class Shape(NamedTuple):
    """Elements by predicate (see `elements.py`), and the predicates themselves.

    `sets` are their clauses; `anchored` has for every clause the predicates of which it is the rarest. Clauses from
    `first_union` on are unions of others.
    """

    offsets: Array
    values: Array
    ranked: Array
    closures: Array
    own: Array
    set_offsets: Array
    sets: Array
    anchored_offsets: Array
    anchored: Array
    first_union: int


@kernel
def _list_sets(shape: Shape, predicate: int, found: Array) -> int:
    """The masks of one predicate, as many as `found` has room for.

    First the subsets of its own clauses, then other single elements, then other predicates that subsume it, then
    pairs. A mask in which an element implies another is left out: a smaller mask says the same.
    """
    start = shape.offsets[predicate]
    order = shape.ranked[start : shape.offsets[predicate + 1]]
    one, count, size = np.uint64(1), len(order), 0
    whole, covered = 0, np.uint64(0)
    while whole < min(count, _WHOLE) and shape.own[start + order[whole]]:
        covered |= one << np.uint64(order[whole])
        whole += 1
    for subset in range(1, 1 << whole):
        mask = np.uint64(0)
        for rank in range(whole):
            if subset >> rank & 1:
                mask |= one << np.uint64(order[rank])
        size = _keep(mask, shape, start, count, found, size)
    for rank in range(whole, count):
        size = _keep(one << np.uint64(order[rank]), shape, start, count, found, size)
    if count > whole and count > 2:
        size = _list_predicates(shape, predicate, covered, found, size)
    for rank in range(whole, count):
        for other in range(rank):
            mask = (one << np.uint64(order[rank])) | (one << np.uint64(order[other]))
            size = _keep(mask, shape, start, count, found, size)
    return size


@kernel
def _keep(mask: np.uint64, shape: Shape, start: int, count: int, found: Array, size: int) -> int:
    """Add a mask, unless there is no room, an element of it implies another, or two of its elements are unions."""
    if size >= len(found):
        return size
    unions = 0
    for place in range(count):
        bit = np.uint64(1) << np.uint64(place)
        if mask & bit:
            unions += shape.values[start + place] >= shape.first_union
            if unions > 1 or shape.closures[start + place] & mask != bit:
                return size
    found[size] = mask
    return size + 1


@kernel
def _list_predicates(shape: Shape, predicate: int, covered: np.uint64, found: Array, size: int) -> int:
    """Other predicates of three clauses or more, all of which are elements of this one; not those listed already."""
    start, stop = shape.offsets[predicate], shape.offsets[predicate + 1]
    searched = 0
    for place in range(start, stop):
        clause = shape.values[place]
        for which in range(shape.anchored_offsets[clause], shape.anchored_offsets[clause + 1]):
            other = shape.anchored[which]
            searched += 1
            if other == predicate or searched > _SEARCHED:
                continue
            mask = _mask_of(shape, other, start, stop)
            if mask & ~covered:
                size = _keep(mask, shape, start, stop - start, found, size)
    return size


@kernel
def _mask_of(shape: Shape, other: int, start: int, stop: int) -> np.uint64:
    """The clauses of another predicate as a mask over the elements from `start` to `stop`; 0 if some is missing."""
    mask, place = np.uint64(0), start
    for wanted in range(shape.set_offsets[other], shape.set_offsets[other + 1]):
        while place < stop and shape.values[place] < shape.sets[wanted]:
            place += 1
        if place == stop or shape.values[place] != shape.sets[wanted]:
            return np.uint64(0)
        mask |= np.uint64(1) << np.uint64(place - start)
    return mask


@kernel
def list_entries(shape: Shape, budget: int, room: int) -> tuple[Array, Array]:
    """All masks of all predicates, and the predicate of each: `budget` for one, at most `room` in all."""
    found = np.empty(budget, dtype=np.uint64)
    wanted = 0
    for predicate in range(len(shape.offsets) - 1):
        wanted += _list_sets(shape, predicate, found)
    masks = np.empty(min(room, wanted), dtype=np.uint64)
    holders = np.empty(len(masks), dtype=np.int64)
    size = 0
    for predicate in range(len(shape.offsets) - 1):
        count = _list_sets(shape, predicate, found)
        for place in range(min(count, len(masks) - size)):
            masks[size] = found[place]
            holders[size] = predicate
            size += 1
    return masks, holders


@kernel
def weigh_entries(masks: Array, holders: Array, offsets: Array, values: Array, numbers: Array) -> Array:
    """For every mask the sum of its clauses' numbers: equal sets have equal sums."""
    keys = np.zeros(len(masks), dtype=np.uint64)
    for entry in range(len(masks)):
        mask, place = masks[entry], offsets[holders[entry]]
        while mask:
            if mask & np.uint64(1):
                keys[entry] += numbers[values[place]]
            mask >>= np.uint64(1)
            place += 1
    return keys


@kernel
def _equal(first: int, second: int, masks: Array, holders: Array, offsets: Array, values: Array) -> bool:
    """Whether two masks, each over the elements of its own predicate, are the same set of clauses."""
    left, right = masks[first], masks[second]
    at, other = offsets[holders[first]], offsets[holders[second]]
    while left and right:
        while not left & np.uint64(1):
            left >>= np.uint64(1)
            at += 1
        while not right & np.uint64(1):
            right >>= np.uint64(1)
            other += 1
        if values[at] != values[other]:
            return False
        left, right = left >> np.uint64(1), right >> np.uint64(1)
        at, other = at + 1, other + 1
    return bool(left == right)


@kernel
def group_entries(
    order: Array, keys: Array, masks: Array, holders: Array, offsets: Array, values: Array
) -> tuple[Array, int]:
    """Numbers for the sets that at least two predicates have, in the given order of entries; -1 for the others.

    Entries are in the order of their keys. A set whose key another set has by chance is left out.
    """
    groups = np.full(len(order), -1, dtype=np.int64)
    count, start = 0, 0
    while start < len(order):
        stop, same = start, 0
        while stop < len(order) and keys[order[stop]] == keys[order[start]]:
            if _equal(order[start], order[stop], masks, holders, offsets, values):
                groups[stop] = count
                same += 1
            stop += 1
        if same < 2:
            groups[start] = -1
        else:
            count += 1
        start = stop
    return groups, count


@kernel
def rate_groups(
    entries: Array,
    masks: Array,
    holders: Array,
    offsets: Array,
    values: Array,
    rates: Array,
    sample: Array,
    sampled: int,
) -> Array:
    """The part of items that satisfies the set of each of these entries."""
    found = np.ones(len(entries), dtype=np.float64)
    together = np.empty(sample.shape[1], dtype=np.uint64)
    for which in range(len(entries)):
        entry = entries[which]
        mask, place = masks[entry], offsets[holders[entry]]
        together[:] = ~np.uint64(0)
        while mask:
            if mask & np.uint64(1):
                found[which] *= rates[values[place]]
                together &= sample[values[place]]
            mask >>= np.uint64(1)
            place += 1
        if sampled:
            seen = 0
            for word in together:
                while word:
                    word &= word - np.uint64(1)
                    seen += 1
            found[which] = seen / sampled if seen else min(found[which], 0.5 / sampled)
    return found


@kernel
def raise_rates(offsets: Array, groups: Array, masks: Array, closed: Array, rates: Array) -> None:
    """Raise rates until no set is rarer than one that it subsumes; the entries of a predicate, largest sets first."""
    changed = True
    while changed:
        changed = False
        for predicate in range(len(offsets) - 1):
            for narrow in range(offsets[predicate], offsets[predicate + 1]):
                rate = rates[groups[narrow]]
                for wide in range(narrow + 1, offsets[predicate + 1]):
                    if rates[groups[wide]] < rate and not masks[wide] & ~closed[narrow]:
                        rates[groups[wide]] = rate
                        changed = True
