"""The prefixes that words begin with, found by the same hash table as whole words.

In: the chunks of a text's words, and a table of prefixes. Out: the prefixes, each once per text. A word is only
asked for the lengths that occur among the prefixes that share its first two bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel, lowest_bit
from runnel.matching.filters.words.word_table import EMPTY, NUMBER, SIZE_SHIFT, UNKNOWN, WordTable, hash_of, seek

_BEGINNINGS = 1 << 12
_LENGTHS = 64
_EIGHT_BITS, _ONE, _NONE = np.uint64(255), np.uint64(1), np.uint64(0)


class Prefixes(NamedTuple):
    """A table of prefixes; bit i of a beginning says that a prefix with lengths[i] bytes begins like this.

    The last bit stands for all lengths that have none of their own.
    """

    table: WordTable
    lengths: Array
    beginnings: Array


def prefixes_of(table: WordTable) -> Prefixes:
    """The prefixes of a table, by their beginnings."""
    places = table.slots[1::2][table.slots[1::2] != EMPTY]
    sizes = (places >> SIZE_SHIFT).astype(np.int64)
    lengths = np.unique(sizes)
    bits = np.minimum(np.searchsorted(lengths, sizes), _LENGTHS - 1)
    beginnings = np.zeros(_BEGINNINGS, dtype=np.uint64)
    _mark_beginnings(table, (places & NUMBER).astype(np.int64), sizes, bits, beginnings)
    lengths.flags.writeable = beginnings.flags.writeable = False
    return Prefixes(table, lengths, beginnings)


@inlined
def _byte(chunks: Array, start: Number, size: Number, index: Number) -> Number:
    """A byte of a word, or 0 behind its end."""
    return (chunks[start + (index >> 3)] >> np.uint64(8 * (index & 7))) & _EIGHT_BITS if index < size else _NONE


@inlined
def _beginning(first: Number, second: Number) -> Number:
    return np.int64(((first << np.uint64(5)) ^ second) & np.uint64(_BEGINNINGS - 1))


@kernel
def _mark_beginnings(table: WordTable, numbers: Array, sizes: Array, bits: Array, beginnings: Array) -> None:
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
    whole, rest = length >> 3, length & 7
    for chunk in range(whole):
        shortened[chunk] = chunks[start + chunk]
    if rest:
        shortened[whole] = chunks[start + whole] & ((_ONE << np.uint64(8 * rest)) - _ONE)


@kernel
def _with_room(pairs: Array, found: Number, more: Number) -> Array:
    """The pairs, of which `found` are there, in an array that has room for some more."""
    if found + more <= len(pairs):
        return pairs
    longer = np.empty(2 * (found + more), np.int64)
    for index in range(found):
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
    seen: Array,
    found: Number,
    pairs: Array,
) -> tuple[Array, int]:
    """Add the prefixes of a text's words to `pairs` (value above number), of which `found` are there already.

    `seen` holds for every prefix the last value that it was added for. The pairs, perhaps moved, and their number.
    """
    table, lengths, beginnings = prefixes
    first_key, second_key, shift, slots, chunk_offsets, held = table
    shortened = np.empty((lengths[-1] + 7) >> 3, np.uint64)
    pairs = _with_room(pairs, found, min(len(seen), count * len(lengths)))
    for word in range(first, first + count):
        size = sizes[word]
        bits = beginnings[_beginning(_byte(chunks, start, size, 0), _byte(chunks, start, size, 1))]
        index = lowest_bit(bits) if bits != _NONE else len(lengths)
        while index < len(lengths) and lengths[index] <= size:
            length = lengths[index]
            _shorten(chunks, start, length, shortened)
            hashed = hash_of(shortened, 0, length, first_key, second_key)
            number = seek(hashed, shortened, 0, length, shift, slots, chunk_offsets, held)
            if number != UNKNOWN and seen[number] != value:
                seen[number] = value
                pairs[found] = value << 32 | number
                found += 1
            bits, index = _next_length(bits, index, len(lengths))
        start += (size + 7) >> 3
    return pairs, found


@inlined
def _next_length(bits: Number, index: Number, count: Number) -> tuple[Number, Number]:
    """The bits that are left, and the next length that they name; the last bit names all lengths from its own on."""
    if index >= _LENGTHS - 1:
        return bits, index + 1
    bits &= bits - _ONE
    return bits, (lowest_bit(bits) if bits != _NONE else count)
