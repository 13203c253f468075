"""Masks: sets of items of a block, with one bit per item in four integers of 64 bits. Many masks share a flat array.

These functions are inlined into the kernels that call them. A loaded mask is a tuple, which is kept in registers.
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
EMPTY_MASK: Mask = (ZERO, ZERO, ZERO, ZERO)

_SHIFT = np.uint64(2)
_INDICES = tuple(np.uint64(index) for index in range(WORDS))


def make_masks(count: int) -> Array:
    """Return an array of `count` empty masks."""
    return np.zeros(WORDS * count, dtype=np.uint64)


def make_bits(count: int) -> Array:
    """Return an array with `count` cleared bits."""
    return np.zeros(-(-count // 64), dtype=np.uint64)


def set_bits(bits: Array, indices: Array) -> None:
    """Set the bits at these indices."""
    np.bitwise_or.at(bits, indices >> 6, ONE << (indices & 63).astype(np.uint64))


@step
def put_bit(bits: Array, index: Number) -> None:
    """Set the bit at an index, which must be unsigned."""
    bits[index >> np.uint64(6)] |= ONE << (index & np.uint64(63))


@step
def load(masks: Array, index: Number) -> Mask:
    """Return the mask at an index, which must be unsigned."""
    at = index << _SHIFT
    return (
        masks[at],
        masks[at | _INDICES[1]],
        masks[at | _INDICES[2]],
        masks[at | _INDICES[3]],
    )


@step
def save(masks: Array, index: Number, mask: Mask) -> None:
    """Store a mask at an index."""
    at = index << _SHIFT
    masks[at] = mask[0]
    masks[at | _INDICES[1]] = mask[1]
    masks[at | _INDICES[2]] = mask[2]
    masks[at | _INDICES[3]] = mask[3]


@step
def put_item(masks: Array, index: Number, item: Number) -> None:
    """Set the bit of an item in the mask at an index."""
    masks[(np.uint64(index) << _SHIFT) | np.uint64(item >> 6)] |= ONE << np.uint64(item & 63)


@step
def either(left: Mask, right: Mask) -> Mask:
    """Return the union of two masks."""
    return (
        left[0] | right[0],
        left[1] | right[1],
        left[2] | right[2],
        left[3] | right[3],
    )


@step
def both(left: Mask, right: Mask) -> Mask:
    """Return the intersection of two masks."""
    return (
        left[0] & right[0],
        left[1] & right[1],
        left[2] & right[2],
        left[3] & right[3],
    )


@step
def without(left: Mask, right: Mask) -> Mask:
    """Return the items of the first mask that are not in the second."""
    return (
        left[0] & ~right[0],
        left[1] & ~right[1],
        left[2] & ~right[2],
        left[3] & ~right[3],
    )


@step
def flipped(mask: Mask, flip: Number) -> Mask:
    """Return the mask if `flip` is ZERO, and its complement if `flip` is ALL."""
    return (
        mask[0] ^ flip,
        mask[1] ^ flip,
        mask[2] ^ flip,
        mask[3] ^ flip,
    )


@step
def is_nonempty(mask: Mask) -> bool:
    """Return whether a mask contains any item."""
    return bool((mask[0] | mask[1] | mask[2] | mask[3]) != ZERO)


@step
def to_mask(words: Array) -> Mask:
    """Return the mask with these four integers."""
    return words[0], words[1], words[2], words[3]
