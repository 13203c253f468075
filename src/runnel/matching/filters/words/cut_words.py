"""The tokenizer's loop: split the bytes of one text into folded words, packed in chunks.

ASCII is processed eight bytes at a time, with arithmetic on all of them at once. Other UTF-8 is decoded with a table
of code points (see `code_points`). The loop stops at input that the table cannot decide: a code point of class SLOW,
marks that compose or are out of order, or bytes that are not UTF-8.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined, kernel, lowest_bit
from runnel.matching.filters.words.code_points import (
    APOSTROPHE,
    ASCII_SEPARATOR,
    BYTES_BITS,
    CLASS_SHIFT,
    COMPOSING_SHIFT,
    COVERED,
    IGNORED,
    MOVING_SHIFT,
    OPEN_SHIFT,
    ORDER_SHIFT,
    SIZE_SHIFT,
    SLOW,
    UNSPACED,
    WORD,
    CodePoints,
)

UNDECIDED = -1
"""The result in place of a number of words if the reference function `words` must split the text."""

_NONE, _ONE, _TWO, _THREE, _FOUR, _FIVE, _SIX, _SEVEN = (np.uint64(number) for number in range(8))
_HALF, _LAST_BIT, _LAST_BYTE = np.uint64(32), np.uint64(63), np.uint64(56)
_EVERY, _LOW, _TOPS, _SMALL = (np.uint64(int.from_bytes(bytes([byte] * 8))) for byte in (1, 0x7F, 0x80, 0x20))
_A, _Z, _ZERO, _NINE, _UNDERSCORE = (np.uint64(ord(character)) for character in "az09_")
_N, _T, _LOWER = np.uint64(ord("n")), np.uint8(ord("t")), np.uint8(0x20)
_BYTES = np.uint64((1 << BYTES_BITS) - 1)
_SIZE_AT, _CLASS_AT, _ORDER_AT = np.uint64(SIZE_SHIFT), np.uint64(CLASS_SHIFT), np.uint64(ORDER_SHIFT)
_SIZE, _CLASS, _ORDER = np.uint64(7), np.uint64(7), np.uint64(63)
_MOVING, _COMPOSING, _OPEN = (np.uint64(1 << bit) for bit in (MOVING_SHIFT, COMPOSING_SHIFT, OPEN_SHIFT))
_MALFORMED = np.uint64(SLOW << CLASS_SHIFT)
_AFTER_ASCII = _OPEN
"""The entry that is used for every ASCII character: most of them can be the first character of a composition."""


def max_words(size: int) -> int:
    """Return the maximum number of chunks, and of words, of a text of `size` bytes.

    Every word has at least one byte, and folding makes no code point longer than three times its bytes.
    """
    return 2 * size + 8


@inlined
def _eight_bytes(data: Array, index: Number) -> Number:
    """Return eight bytes as one integer, the first byte lowest. Written so that LLVM compiles it to one load."""
    at = np.uint64(index)
    low = np.uint32(data[at]) | np.uint32(data[at + _ONE]) << 8
    low |= np.uint32(data[at + _TWO]) << 16 | np.uint32(data[at + _THREE]) << 24
    high = np.uint32(data[at + _FOUR]) | np.uint32(data[at + _FIVE]) << 8
    high |= np.uint32(data[at + _SIX]) << 16 | np.uint32(data[at + _SEVEN]) << 24
    return np.uint64(low) | np.uint64(high) << _HALF


@inlined
def _between(eight: Number, low: Number, high: Number) -> Number:
    """Set the highest bit of every byte from `low` to `high`. All bytes must be below 128."""
    return (eight + (_TOPS - _EVERY * low)) & ~(eight + (_TOPS - _EVERY * (high + _ONE))) & _TOPS


@inlined
def _ascii_run(eight: Number) -> tuple[Number, Number]:
    """Return how many of eight bytes, from the first on, are ASCII word characters, and all eight bytes folded."""
    low = eight & _LOW
    letters = _between(low | _SMALL, _A, _Z)
    parts = (letters | _between(low, _ZERO, _NINE) | _between(low, _UNDERSCORE, _UNDERSCORE)) & ~eight
    run = 8 if parts == _TOPS else lowest_bit(~parts & _TOPS) >> 3
    return run, eight | letters >> _TWO


@inlined
def _entry(data: Array, index: Number, end: Number, entries: Array) -> tuple[Number, Number]:
    """Return the table entry of the code point at `index`, and its size in bytes."""
    first = np.int64(data[index])
    left = end - index
    if first < 0x80:
        return entries[first], 1
    if 0xC2 <= first < 0xE0 and left > 1 and data[index + 1] & 0xC0 == 0x80:
        return entries[(first & 0x1F) << 6 | data[index + 1] & 0x3F], 2
    if first & 0xF0 == 0xE0 and left > 2 and data[index + 1] & 0xC0 == 0x80 and data[index + 2] & 0xC0 == 0x80:
        code = (first & 0x0F) << 12 | (data[index + 1] & 0x3F) << 6 | data[index + 2] & 0x3F
        # Overlong encodings are malformed. Surrogates are SLOW in the table.
        return (entries[code] if code >= 0x800 else _MALFORMED), 3
    if first == 0xF0 and left > 3 and data[index + 1] & 0xC0 == 0x80 and data[index + 2] & 0xC0 == 0x80:
        code = (data[index + 1] & 0x3F) << 12 | (data[index + 2] & 0x3F) << 6 | data[index + 3] & 0x3F
        if 0x10000 <= code < COVERED and data[index + 3] & 0xC0 == 0x80:
            return entries[code], 4
    return _MALFORMED, 1


@inlined
def _class(entry: Number) -> Number:
    return np.int64((entry >> _CLASS_AT) & _CLASS)


@inlined
def _skip_ignored(data: Array, index: Number, end: Number, entries: Array) -> Number:
    """Return the index of the next code point that is not ignored, or the end."""
    while index < end and data[index] >= 0x80:
        entry, width = _entry(data, index, end, entries)
        if _class(entry) != IGNORED:
            break
        index += width
    return index


@inlined
def _is_contraction(
    data: Array, index: Number, end: Number, entries: Array, packed: Number, size: Number, chunks: Array, at: Number
) -> Number:
    """Return whether the apostrophe before `index` is part of n't: the word ends with n, and a final t follows."""
    if size == 0:
        return False
    last = packed >> np.uint64(8 * ((size & 7) - 1)) if size & 7 else chunks[at - 1] >> _LAST_BYTE
    if last != _N:
        return False
    index = _skip_ignored(data, index, end, entries)
    if index >= end or data[index] | _LOWER != _T:
        return False
    index = _skip_ignored(data, index + 1, end, entries)
    return index >= end or _class(_entry(data, index, end, entries)[0]) != WORD


@inlined
def _undecided(entry: Number, last: Number) -> Number:
    """Return whether normalization may change a code point because of the preceding one, or its class is SLOW."""
    composes = entry & _COMPOSING and last & _OPEN
    moves = entry & _MOVING and (last >> _ORDER_AT) & _ORDER > (entry >> _ORDER_AT) & _ORDER
    return composes or moves or _class(entry) == SLOW


@inlined
def _append(
    folded: Number, more: Number, packed: Number, size: Number, chunks: Array, at: Number
) -> tuple[Number, Number, Number]:
    """Append up to eight bytes to a word. Return its incomplete chunk, its size and the index of its next chunk."""
    shift = np.uint64(8 * (size & 7))
    packed |= folded << shift
    if (size & 7) + more >= 8:
        chunks[at] = packed
        at += 1
        # In two steps, because a shift by 64 bits is undefined.
        packed = (folded >> _ONE) >> (_LAST_BIT - shift)
    return packed, size + more, at


@inlined
def _finish(
    packed: Number, size: Number, chunks: Array, at: Number, sizes: Array, count: Number
) -> tuple[Number, Number]:
    """End a word if it is not empty. Return the index of the next chunk and the number of words."""
    chunks[at] = packed
    sizes[count] = size
    return at + (1 if size & 7 else 0), count + (1 if size else 0)


@kernel
def cut_words(data: Array, start: Number, end: Number, codes: CodePoints, chunks: Array, sizes: Array) -> Number:
    """Split `data[start:end]` into words. Write their chunks and sizes, and return their number, or UNDECIDED."""
    folding, entries = codes
    index, at, count, size, packed = start, 0, 0, 0, _NONE
    last_end, last, eight_byte_end = start, _AFTER_ASCII, min(end, len(data) - 7)
    while index < end:
        if index < eight_byte_end:
            run, folded = _ascii_run(_eight_bytes(data, index))
            run = min(run, end - index)
            folded &= ~(~_NONE << np.uint64(8 * run)) if run < 8 else ~_NONE
            packed, size, at = _append(folded, run, packed, size, chunks, at)
            index += run
            if run == 8 or index == end:
                continue
        if folding[data[index]] == ASCII_SEPARATOR:
            at, count = _finish(packed, size, chunks, at, sizes, count)
            packed, size = _NONE, 0
            index += 1
            continue
        last = last if last_end == index else _AFTER_ASCII
        entry, width = _entry(data, index, end, entries)
        if _undecided(entry, last):
            return UNDECIDED
        index += width
        last_end = index
        kind = _class(entry)
        if kind == IGNORED:
            continue
        # After a mark, the character before it can still compose with a later one.
        last = entry | (last & _OPEN if entry & _MOVING else _NONE)
        continues_word = kind == WORD or (
            kind == APOSTROPHE and _is_contraction(data, index, end, entries, packed, size, chunks, at)
        )
        if not continues_word:
            at, count = _finish(packed, size, chunks, at, sizes, count)
            packed, size = _NONE, 0
        if continues_word or kind == UNSPACED:
            packed, size, at = _append(
                entry & _BYTES, np.int64((entry >> _SIZE_AT) & _SIZE), packed, size, chunks, at
            )
        if kind == UNSPACED:
            at, count = _finish(packed, size, chunks, at, sizes, count)
            packed, size = _NONE, 0
    at, count = _finish(packed, size, chunks, at, sizes, count)
    return count
