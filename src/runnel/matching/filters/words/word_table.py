"""Kernels for the hash table of words: pack, hash, insert and look up words.

A word is packed into chunks of eight bytes. The hash of one chunk is a bijection, so two words of up to eight bytes
with equal hashes and sizes are equal. Longer words are compared chunk by chunk. Hash collisions are thus harmless.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel, prefetch

UNKNOWN = -1
"""The value in place of the number of a word that is not in the table."""

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""A slot without a word."""

SIZE_SHIFT, NUMBER = np.uint64(32), np.uint64(0xFFFFFFFF)
"""The second integer of a slot contains the size of the word in bytes in its upper bits, and the word's number."""

_FIRST_STEP, _SECOND_STEP = np.uint64(32), np.uint64(29)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_PREFETCHED = 64
"""Words whose slots are prefetched together."""


class WordTable(NamedTuple):
    """The two keys of the hash, the number of bits by which a hash is shifted to get its slot, and the arrays.

    A slot has two integers: the hash of a word, and its size in bytes and number. The chunks of word i begin at
    `chunk_offsets[i]`.
    """

    first_key: np.uint64
    second_key: np.uint64
    shift: np.uint64
    slots: Array
    chunk_offsets: Array
    chunks: Array


@inlined
def mix(value: Number, first_key: Number, second_key: Number) -> Number:
    """Compute one round of the hash, which is a bijection of 64 bits because the second key is odd."""
    value = (value ^ first_key) * second_key
    value ^= value >> _FIRST_STEP
    value *= _SPREAD
    return value ^ (value >> _SECOND_STEP)


@inlined
def hash_of(chunks: Array, start: Number, size: Number, first_key: Number, second_key: Number) -> Number:
    """Return the hash of a word of `size` bytes (at least one) whose chunks begin at `start`."""
    hashed = mix(chunks[start], first_key, second_key)
    remaining = size
    while remaining > 8:
        start += 1
        remaining -= 8
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
    table_chunks: Array,
) -> Number:
    """Return the number of the word with this hash, size and chunks, or UNKNOWN.

    The arrays of a WordTable are separate parameters, because numba counts references each time a field is read.
    Kernels unpack the table once, before their loops.
    """
    mask = np.uint64((len(slots) >> 1) - 1)
    slot = hashed >> shift
    number = np.int32(UNKNOWN)
    while True:
        entry = slots[(slot << _ONE) + _ONE]
        if entry == EMPTY:
            break
        if slots[slot << _ONE] == hashed and entry >> SIZE_SHIFT == np.uint64(size):
            number = np.int32(entry & NUMBER)
            chunk, count = 0, (size + 7) >> 3 if size > 8 else 0
            while chunk < count and chunks[start + chunk] == table_chunks[chunk_offsets[number] + chunk]:
                chunk += 1
            if chunk == count:
                break
            number = np.int32(UNKNOWN)
        slot = (slot + _ONE) & mask
    return number


@inlined
def pack(data: Array, start: Number, end: Number, chunks: Array, at: Number) -> Number:
    """Pack bytes into chunks from the index `at` on. Return the index after the last chunk."""
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
    """Pack consecutive words of these sizes."""
    start, at = 0, 0
    for size in sizes:
        at = pack(data, start, start + size, chunks, at)
        start += size


@kernel
def fill(sizes: Array, table: WordTable, slots: Array) -> int:
    """Insert every word into `slots`, except empty and repeated ones. Return the maximum number of probes.

    `slots` is a writable view of the slots of the table.
    """
    first_key, second_key, shift, _, chunk_offsets, chunks = table
    mask = np.uint64((len(slots) >> 1) - 1)
    max_probes = 0
    for word in range(len(sizes)):
        start, size = chunk_offsets[word], sizes[word]
        if size == 0:
            continue
        hashed = hash_of(chunks, start, size, first_key, second_key)
        if seek(hashed, chunks, start, size, shift, slots, chunk_offsets, chunks) != UNKNOWN:
            continue
        slot = hashed >> shift
        probes = 1
        while slots[(slot << _ONE) + _ONE] != EMPTY:
            slot = (slot + _ONE) & mask
            probes += 1
        slots[slot << _ONE] = hashed
        slots[(slot << _ONE) + _ONE] = (np.uint64(size) << SIZE_SHIFT) | np.uint64(word)
        max_probes = max(max_probes, probes)
    return max_probes


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
    """Write the numbers of `count` words to `numbers` from the index `at` on. Return the index after their chunks.

    The slots are scattered in memory, so those of several words are prefetched before the first one is read.
    """
    first_key, second_key, shift, slots, chunk_offsets, table_chunks = table
    hashes, last = np.empty(_PREFETCHED, np.uint64), first + count
    for group in range(first, last, _PREFETCHED):
        ahead = start
        for word in range(group, min(group + _PREFETCHED, last)):
            hashes[word - group] = hash_of(chunks, ahead, sizes[word], first_key, second_key)
            prefetch(slots, (hashes[word - group] >> shift) << _ONE)
            ahead += (sizes[word] + 7) >> 3
        for word in range(group, min(group + _PREFETCHED, last)):
            size = sizes[word]
            numbers[at] = seek(hashes[word - group], chunks, start, size, shift, slots, chunk_offsets, table_chunks)
            at += 1
            start += (size + 7) >> 3
    return start
