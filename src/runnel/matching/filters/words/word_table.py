"""The hash table of words, as kernels see it: packing, hashing, filling and seeking.

A word is packed into chunks of eight bytes. The hash of one chunk is a bijection, so for a word of up to eight bytes
equal hashes and sizes are equal words; longer ones are compared chunk by chunk. No answer rests on a hash.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel, prefetch

UNKNOWN = -1
"""In place of the number of a word that is not in the table."""

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""A slot without a word."""

SIZE_SHIFT, NUMBER = np.uint64(32), np.uint64(0xFFFFFFFF)
"""The second half of a slot: the size of the word in bytes above its number."""

_FIRST_STEP, _SECOND_STEP = np.uint64(32), np.uint64(29)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_TOGETHER = 64


class WordTable(NamedTuple):
    """Two keys of the hash, the shift that leads from a hash to its slot, and the arrays.

    Slot i is a hash and (size in bytes, number) of a word; the chunks of word i begin at `chunk_offsets[i]`.
    """

    first_key: np.uint64
    second_key: np.uint64
    shift: np.uint64
    slots: Array
    chunk_offsets: Array
    chunks: Array


@inlined
def mix(value: Number, first_key: Number, second_key: Number) -> Number:
    """One round of the hash: a bijection of 64 bits, because the second key is odd."""
    value = (value ^ first_key) * second_key
    value ^= value >> _FIRST_STEP
    value *= _SPREAD
    return value ^ (value >> _SECOND_STEP)


@inlined
def hash_of(chunks: Array, start: Number, size: Number, first_key: Number, second_key: Number) -> Number:
    """The hash of a word of `size` bytes, at least one, whose chunks begin at `start`."""
    hashed = mix(chunks[start], first_key, second_key)
    left = size
    while left > 8:
        start += 1
        left -= 8
        hashed = mix(hashed ^ chunks[start], first_key, second_key)
    return hashed


@inlined
def seek(
    hashed: Number,
    chunks: Array,
    start: Number,
    size: Number,
    shift: Number,
    slots: Array,
    chunk_offsets: Array,
    held: Array,
) -> Number:
    """The number of the word with this hash, size and chunks, or UNKNOWN; `held` are the chunks of the table.

    Kernels unpack a Table before their loops: its arrays are counted whenever they are taken out.
    """
    mask = np.uint64((len(slots) >> 1) - 1)
    slot = hashed >> shift
    number = np.int32(UNKNOWN)
    while True:
        place = slots[(slot << _ONE) + _ONE]
        if place == EMPTY:
            break
        if slots[slot << _ONE] == hashed and place >> SIZE_SHIFT == np.uint64(size):
            number = np.int32(place & NUMBER)
            step, steps = 0, (size + 7) >> 3 if size > 8 else 0
            while step < steps and chunks[start + step] == held[chunk_offsets[number] + step]:
                step += 1
            if step == steps:
                break
            number = np.int32(UNKNOWN)
        slot = (slot + _ONE) & mask
    return number


@inlined
def pack(data: Array, start: Number, end: Number, chunks: Array, at: Number) -> Number:
    """Pack bytes into chunks from `at` on; the place after the last chunk."""
    packed = np.uint64(0)
    for index in range(start, end):
        packed |= np.uint64(data[index]) << np.uint64(8 * ((index - start) & 7))
        if (index - start) & 7 == 7:
            chunks[at] = packed
            at += 1
            packed = np.uint64(0)
    if (end - start) & 7:
        chunks[at] = packed
        at += 1
    return at


@kernel
def pack_all(data: Array, sizes: Array, chunks: Array) -> None:
    """Pack words that stand one after the other."""
    read, at = 0, 0
    for size in sizes:
        at = pack(data, read, read + size, chunks, at)
        read += size


@kernel
def fill(sizes: Array, table: WordTable, slots: Array) -> int:
    """Put every word into the slots, the first of equal ones and no empty one; the longest chain that was walked.

    The slots are those of the table, here to be written to.
    """
    first_key, second_key, shift, _, chunk_offsets, chunks = table
    mask = np.uint64((len(slots) >> 1) - 1)
    longest = 0
    for word in range(len(sizes)):
        start, size = chunk_offsets[word], sizes[word]
        if size == 0:
            continue
        hashed = hash_of(chunks, start, size, first_key, second_key)
        if seek(hashed, chunks, start, size, shift, slots, chunk_offsets, chunks) != UNKNOWN:
            continue
        slot = hashed >> shift
        chain = 1
        while slots[(slot << _ONE) + _ONE] != EMPTY:
            slot = (slot + _ONE) & mask
            chain += 1
        slots[slot << _ONE] = hashed
        slots[(slot << _ONE) + _ONE] = (np.uint64(size) << SIZE_SHIFT) | np.uint64(word)
        longest = max(longest, chain)
    return longest


@kernel
def look_up(
    chunks: Array,
    start: Number,
    sizes: Array,
    first: Number,
    count: Number,
    table: WordTable,
    numbers: Array,
    at: Number,
) -> Number:
    """Write the numbers of `count` words from `at` on; the place after their chunks.

    The slots lie anywhere in memory, so those of some words are asked for before the first of them is read.
    """
    first_key, second_key, shift, slots, chunk_offsets, held = table
    hashes, last = np.empty(_TOGETHER, np.uint64), first + count
    for group in range(first, last, _TOGETHER):
        ahead = start
        for word in range(group, min(group + _TOGETHER, last)):
            hashes[word - group] = hash_of(chunks, ahead, sizes[word], first_key, second_key)
            prefetch(slots, (hashes[word - group] >> shift) << _ONE)
            ahead += (sizes[word] + 7) >> 3
        for word in range(group, min(group + _TOGETHER, last)):
            size = sizes[word]
            numbers[at] = seek(hashes[word - group], chunks, start, size, shift, slots, chunk_offsets, held)
            at += 1
            start += (size + 7) >> 3
    return start
