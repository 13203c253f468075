"""Masks: a bit for every item of a block, as four numbers of 64 bits. Many masks lie in one flat array.

These functions become a part of the kernels that use them; a mask in hand is a tuple, which needs no memory.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, step

WORDS = 4
BLOCK = 64 * WORDS

ONE = np.uint64(1)
ZERO = np.uint64(0)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)

Mask = tuple[Number, ...]
NOBODY: Mask = (ZERO, ZERO, ZERO, ZERO)

_SHIFT = np.uint64(2)
_PLACES = tuple(np.uint64(place) for place in range(WORDS))


def make_masks(count: int) -> Array:
    """Room for so many masks, all empty."""
    return np.zeros(WORDS * count, dtype=np.uint64)


def make_bits(count: int) -> Array:
    """Room for one bit for each of so many things, none set."""
    return np.zeros(-(-count // 64), dtype=np.uint64)


def set_bits(bits: Array, indices: Array) -> None:
    """Set the bits at some indices."""
    np.bitwise_or.at(bits, indices >> 6, ONE << (indices & 63).astype(np.uint64))


@step
def put_bit(bits: Array, index: Number) -> None:
    """Set the bit at an index, which is an unsigned number."""
    bits[index >> np.uint64(6)] |= ONE << (index & np.uint64(63))


@step
def load(masks: Array, index: Number) -> Mask:
    """The mask at an index, which is an unsigned number."""
    at = index << _SHIFT
    return (
        masks[at],
        masks[at | _PLACES[1]],
        masks[at | _PLACES[2]],
        masks[at | _PLACES[3]],
    )


@step
def save(masks: Array, index: Number, mask: Mask) -> None:
    """Put a mask at an index."""
    at = index << _SHIFT
    masks[at] = mask[0]
    masks[at | _PLACES[1]] = mask[1]
    masks[at | _PLACES[2]] = mask[2]
    masks[at | _PLACES[3]] = mask[3]


@step
def put_item(masks: Array, index: Number, item: Number) -> None:
    """Set the bit of an item in the mask at an index."""
    masks[(np.uint64(index) << _SHIFT) | np.uint64(item >> 6)] |= ONE << np.uint64(item & 63)


@step
def either(left: Mask, right: Mask) -> Mask:
    """The items of any of the two."""
    return (
        left[0] | right[0],
        left[1] | right[1],
        left[2] | right[2],
        left[3] | right[3],
    )


@step
def both(left: Mask, right: Mask) -> Mask:
    """The items of both."""
    return (
        left[0] & right[0],
        left[1] & right[1],
        left[2] & right[2],
        left[3] & right[3],
    )


@step
def without(left: Mask, right: Mask) -> Mask:
    """The items of the first that are not in the second."""
    return (
        left[0] & ~right[0],
        left[1] & ~right[1],
        left[2] & ~right[2],
        left[3] & ~right[3],
    )


@step
def flipped(mask: Mask, flip: Number) -> Mask:
    """The mask, or where `flip` is ALL its complement."""
    return (
        mask[0] ^ flip,
        mask[1] ^ flip,
        mask[2] ^ flip,
        mask[3] ^ flip,
    )


@step
def some(mask: Mask) -> bool:
    """Whether any item is there."""
    return bool((mask[0] | mask[1] | mask[2] | mask[3]) != ZERO)


@step
def gathered(words: Array) -> Mask:
    """The mask that an array of its numbers holds."""
    return words[0], words[1], words[2], words[3]
