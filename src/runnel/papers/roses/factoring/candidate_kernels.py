"""Kernels that list sets of elements of every predicate, within a budget, and group equal sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel

_MAX_ENUMERATED = 6
"""All subsets of at most this many own clauses (the most selective) are listed. Others form single sets and pairs."""

_MAX_SEARCHED = 512
"""The maximum number of predicates compared with each predicate to find those that subsume it."""


class Shape(NamedTuple):
    """Elements by predicate (see `elements.py`), and the predicates themselves.

    `sets` are their clauses; `anchored` has for every clause the predicates in which it is the clause that the
    fewest predicates have. Clauses from `first_union` on are unions of others.
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
def _list_sets(shape: Shape, predicate: int, listed: Array) -> int:
    """Write the masks of one predicate to `listed` until it is full, and return their number.

    The subsets of its own clauses come first, then other single elements, then other predicates that subsume it, then
    pairs. A mask in which an element implies another is omitted, because a smaller mask is equivalent.
    """
    start = shape.offsets[predicate]
    order = shape.ranked[start : shape.offsets[predicate + 1]]
    bit, count, size = np.uint64(1), len(order), 0
    enumerated, covered = 0, np.uint64(0)
    while enumerated < min(count, _MAX_ENUMERATED) and shape.own[start + order[enumerated]]:
        covered |= bit << np.uint64(order[enumerated])
        enumerated += 1
    for subset in range(1, 1 << enumerated):
        mask = np.uint64(0)
        for rank in range(enumerated):
            if subset >> rank & 1:
                mask |= bit << np.uint64(order[rank])
        size = _append_mask(mask, shape, start, count, listed, size)
    for rank in range(enumerated, count):
        size = _append_mask(bit << np.uint64(order[rank]), shape, start, count, listed, size)
    if count > enumerated and count > 2:
        size = _list_predicates(shape, predicate, covered, listed, size)
    for rank in range(enumerated, count):
        for other in range(rank):
            mask = (bit << np.uint64(order[rank])) | (bit << np.uint64(order[other]))
            size = _append_mask(mask, shape, start, count, listed, size)
    return size


@kernel
def _append_mask(mask: np.uint64, shape: Shape, start: int, count: int, listed: Array, size: int) -> int:
    """Append a mask unless `listed` is full, an element implies another, or two elements are unions.

    Return the size.
    """
    if size >= len(listed):
        return size
    unions = 0
    for index in range(count):
        bit = np.uint64(1) << np.uint64(index)
        if mask & bit:
            unions += shape.values[start + index] >= shape.first_union
            if unions > 1 or shape.closures[start + index] & mask != bit:
                return size
    listed[size] = mask
    return size + 1


@kernel
def _list_predicates(shape: Shape, predicate: int, covered: np.uint64, listed: Array, size: int) -> int:
    """List other predicates of at least three clauses, all of them elements of this one, that are not listed yet."""
    start, stop = shape.offsets[predicate], shape.offsets[predicate + 1]
    searched = 0
    for index in range(start, stop):
        clause = shape.values[index]
        for anchored_index in range(shape.anchored_offsets[clause], shape.anchored_offsets[clause + 1]):
            other = shape.anchored[anchored_index]
            searched += 1
            if other == predicate or searched > _MAX_SEARCHED:
                continue
            mask = _mask_of(shape, other, start, stop)
            if mask & ~covered:
                size = _append_mask(mask, shape, start, stop - start, listed, size)
    return size


@kernel
def _mask_of(shape: Shape, other: int, start: int, stop: int) -> np.uint64:
    """Return a predicate's clauses as a mask over the elements from `start` to `stop`, or 0 if one is missing."""
    mask, index = np.uint64(0), start
    for set_index in range(shape.set_offsets[other], shape.set_offsets[other + 1]):
        while index < stop and shape.values[index] < shape.sets[set_index]:
            index += 1
        if index == stop or shape.values[index] != shape.sets[set_index]:
            return np.uint64(0)
        mask |= np.uint64(1) << np.uint64(index - start)
    return mask


@kernel
def list_entries(shape: Shape, budget: int, max_entries: int) -> tuple[Array, Array]:
    """Return the masks of all predicates and the predicate of each, at most `budget` per predicate."""
    listed = np.empty(budget, dtype=np.uint64)
    total = 0
    for predicate in range(len(shape.offsets) - 1):
        total += _list_sets(shape, predicate, listed)
    masks = np.empty(min(max_entries, total), dtype=np.uint64)
    holders = np.empty(len(masks), dtype=np.int64)
    size = 0
    for predicate in range(len(shape.offsets) - 1):
        count = _list_sets(shape, predicate, listed)
        for index in range(min(count, len(masks) - size)):
            masks[size] = listed[index]
            holders[size] = predicate
            size += 1
    return masks, holders


@kernel
def weigh_entries(masks: Array, holders: Array, offsets: Array, values: Array, numbers: Array) -> Array:
    """Return the sum of the clauses' numbers for every mask. Equal sets have equal sums."""
    keys = np.zeros(len(masks), dtype=np.uint64)
    for entry in range(len(masks)):
        mask, index = masks[entry], offsets[holders[entry]]
        while mask:
            if mask & np.uint64(1):
                keys[entry] += numbers[values[index]]
            mask >>= np.uint64(1)
            index += 1
    return keys


@kernel
def _equal(first: int, second: int, masks: Array, holders: Array, offsets: Array, values: Array) -> bool:
    """Whether two masks, each over the elements of its own predicate, are the same set of clauses."""
    first_mask, second_mask = masks[first], masks[second]
    first_index, second_index = offsets[holders[first]], offsets[holders[second]]
    while first_mask and second_mask:
        while not first_mask & np.uint64(1):
            first_mask >>= np.uint64(1)
            first_index += 1
        while not second_mask & np.uint64(1):
            second_mask >>= np.uint64(1)
            second_index += 1
        if values[first_index] != values[second_index]:
            return False
        first_mask, second_mask = first_mask >> np.uint64(1), second_mask >> np.uint64(1)
        first_index, second_index = first_index + 1, second_index + 1
    return bool(first_mask == second_mask)


@kernel
def group_entries(
    order: Array, keys: Array, masks: Array, holders: Array, offsets: Array, values: Array
) -> tuple[Array, int]:
    """Number the sets that at least two predicates have. Return the number of each entry in `order`, and the count.

    `order` sorts the entries by key. Other entries get -1, as do sets whose key another set has by chance.
    """
    groups = np.full(len(order), -1, dtype=np.int64)
    count, start = 0, 0
    while start < len(order):
        stop, members = start, 0
        while stop < len(order) and keys[order[stop]] == keys[order[start]]:
            if _equal(order[start], order[stop], masks, holders, offsets, values):
                groups[stop] = count
                members += 1
            stop += 1
        if members < 2:
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
    """Return the share of items that satisfies the set of each of these entries."""
    shares = np.ones(len(entries), dtype=np.float64)
    all_true = np.empty(sample.shape[1], dtype=np.uint64)
    for index in range(len(entries)):
        entry = entries[index]
        mask, element = masks[entry], offsets[holders[entry]]
        all_true[:] = ~np.uint64(0)
        while mask:
            if mask & np.uint64(1):
                shares[index] *= rates[values[element]]
                all_true &= sample[values[element]]
            mask >>= np.uint64(1)
            element += 1
        if sampled:
            seen = 0
            for word in all_true:
                while word:
                    word &= word - np.uint64(1)
                    seen += 1
            shares[index] = seen / sampled if seen else min(shares[index], 0.5 / sampled)
    return shares


@kernel
def raise_rates(offsets: Array, groups: Array, masks: Array, closed: Array, rates: Array) -> None:
    """Raise rates until no set is rarer than a set that it subsumes. Each predicate lists larger sets first."""
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
