"""Find the prefixes that words begin with, in the same kind of hash table as whole words.

In: the chunks of a text's words, and a table of prefixes. Out: the prefixes, each once per text. Only those lengths
are looked up that occur among the prefixes with the word's first two bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel, lowest_bit
from runnel.matching.filters.words.word_table import EMPTY, NUMBER, SIZE_SHIFT, UNKNOWN, WordTable, hash_of, seek

_BEGINNINGS = 1 << 12
_MAX_LENGTHS = 64
_EIGHT_BITS, _ONE, _NONE = np.uint64(255), np.uint64(1), np.uint64(0)


class Prefixes(NamedTuple):
    """A table of prefixes. `beginnings` has a bit mask for each hash of two first bytes.

    Bit i is set if a prefix of lengths[i] bytes begins with these bytes. The last bit stands for all further lengths.
    """

    table: WordTable
    lengths: Array
    beginnings: Array


def prefixes_of(table: WordTable) -> Prefixes:
    """Build the index of the first bytes of the prefixes in a table."""
    entries = table.slots[1::2][table.slots[1::2] != EMPTY]
    sizes = (entries >> SIZE_SHIFT).astype(np.int64)
    lengths = np.unique(sizes)
    bits = np.minimum(np.searchsorted(lengths, sizes), _MAX_LENGTHS - 1)
    beginnings = np.zeros(_BEGINNINGS, dtype=np.uint64)
    _mark_beginnings(table, (entries & NUMBER).astype(np.int64), sizes, bits, beginnings)
    lengths.flags.writeable = beginnings.flags.writeable = False
    return Prefixes(table, lengths, beginnings)


@inlined
def _byte(chunks: Array, start: Number, size: Number, index: Number) -> Number:
    """Return a byte of a word, or 0 after its end."""
    return (chunks[start + (index >> 3)] >> np.uint64(8 * (index & 7))) & _EIGHT_BITS if index < size else _NONE


@inlined
def _beginning(first: Number, second: Number) -> Number:
    """Return the hash of the first two bytes of a word."""
    return np.int64(((first << np.uint64(5)) ^ second) & np.uint64(_BEGINNINGS - 1))


@kernel
def _mark_beginnings(table: WordTable, numbers: Array, sizes: Array, bits: Array, beginnings: Array) -> None:
    """Set the bit of each prefix in the mask of its first two bytes; for a prefix of one byte, in 256 masks."""
    for index in range(len(numbers)):
        start, size, bit = table.chunk_offsets[numbers[index]], sizes[index], _ONE << np.uint64(bits[index])
        first, second = _byte(table.chunks, start, size, 0), _byte(table.chunks, start, size, 1)
        if size == 1:
            for any_byte in range(256):
                beginnings[_beginning(first, np.uint64(any_byte))] |= bit
        else:
            beginnings[_beginning(first, second)] |= bit


@inlined
def _shorten(chunks: Array, start: Number, length: Number, shortened: Array) -> None:
    """Write the chunks of the first `length` bytes of a word."""
    full_chunks, rest = length >> 3, length & 7
    for chunk in range(full_chunks):
        shortened[chunk] = chunks[start + chunk]
    if rest:
        shortened[full_chunks] = chunks[start + full_chunks] & ((_ONE << np.uint64(8 * rest)) - _ONE)


@kernel
def _ensure_capacity(pairs: Array, pair_count: Number, more: Number) -> Array:
    """Return the pairs in an array with space for `more` pairs after the first `pair_count`."""
    if pair_count + more <= len(pairs):
        return pairs
    longer = np.empty(2 * (pair_count + more), np.int64)
    for index in range(pair_count):
        longer[index] = pairs[index]
    return longer


@kernel
def find_prefixes(
    chunks: Array,
    start: Number,
    sizes: Array,
    first: Number,
    count: Number,
    prefixes: Prefixes,
    value: Number,
    last_values: Array,
    pair_count: Number,
    pairs: Array,
) -> tuple[Array, int]:
    """Add the prefixes of a text's words as pairs `value << 32 | prefix` after the first `pair_count` pairs.

    `last_values` has for every prefix the last value it was added for. Return the pairs, in a new array if the old
    one was too short, and their number.
    """
    table, lengths, beginnings = prefixes
    first_key, second_key, shift, slots, chunk_offsets, table_chunks = table
    shortened = np.empty((lengths[-1] + 7) >> 3, np.uint64)
    pairs = _ensure_capacity(pairs, pair_count, min(len(last_values), count * len(lengths)))
    for word in range(first, first + count):
        size = sizes[word]
        bits = beginnings[_beginning(_byte(chunks, start, size, 0), _byte(chunks, start, size, 1))]
        index = lowest_bit(bits) if bits != _NONE else len(lengths)
        while index < len(lengths) and lengths[index] <= size:
            length = lengths[index]
            _shorten(chunks, start, length, shortened)
            hashed = hash_of(shortened, 0, length, first_key, second_key)
            number = seek(hashed, shortened, 0, length, shift, slots, chunk_offsets, table_chunks)
            if number != UNKNOWN and last_values[number] != value:
                last_values[number] = value
                pairs[pair_count] = value << 32 | number
                pair_count += 1
            bits, index = _next_length(bits, index, len(lengths))
        start += (size + 7) >> 3
    return pairs, pair_count


@inlined
def _next_length(bits: Number, index: Number, count: Number) -> tuple[Number, Number]:
    """Return the remaining bits and the index of the next length. The last bit stands for all further lengths."""
    if index >= _MAX_LENGTHS - 1:
        return bits, index + 1
    bits &= bits - _ONE
    return bits, (lowest_bit(bits) if bits != _NONE else count)
