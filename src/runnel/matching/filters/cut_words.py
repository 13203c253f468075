"""The tokeniser's loop: the bytes of one text in, the chunks of its folded words out.

It reads UTF-8 with a table of code points (see `code_points`) and stops where the table cannot decide: at a code
point that is SLOW, at marks that compose or stand out of order, and at bytes that are not UTF-8.
"""

from __future__ import annotations

import numpy as np

from runnel.matching.filters.code_points import (
    APOSTROPHE,
    ASCII_NOT,
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
)
from runnel.plan.kernel import inlined, kernel, lowest_bit

UNDECIDED = -1
"""In place of the number of words: the text must be cut by the definition of words."""

_APOSTROPHE = np.uint64(0x27)
_ONE, _TWO, _THREE, _FOUR, _FIVE, _SIX, _SEVEN = (np.uint64(number) for number in range(1, 8))
_HALF, _LAST_BIT = np.uint64(32), np.uint64(63)
_EVERY, _LOW, _TOPS, _SMALL = (np.uint64(int.from_bytes(bytes([byte] * 8))) for byte in (1, 0x7F, 0x80, 0x20))
_A, _Z, _ZERO, _NINE, _UNDERSCORE = (np.uint64(ord(character)) for character in "az09_")
_BYTES = np.uint64((1 << BYTES_BITS) - 1)
_SIZE_AT, _CLASS_AT, _ORDER_AT = np.uint64(SIZE_SHIFT), np.uint64(CLASS_SHIFT), np.uint64(ORDER_SHIFT)
_MOVING, _COMPOSING, _OPEN = (np.uint64(1 << bit) for bit in (MOVING_SHIFT, COMPOSING_SHIFT, OPEN_SHIFT))
_THREE_BITS, _SIX_BITS, _EIGHT_BITS = np.uint64(7), np.uint64(63), np.uint64(255)
_NONE = np.uint64(0)
_MALFORMED = np.uint64(SLOW << CLASS_SHIFT)
_AFTER_ASCII = _OPEN
"""What counts as the entry of an ASCII character: most of them can be the first of a composition."""


def room_for(size: int) -> int:
    """How many chunks, or words, a text of `size` bytes can have at most.

    Every word has a byte of its own, and no code point is folded to more than three times its bytes.
    """
    return 2 * size + 8


@inlined
def _entry(data, index, end, entries):  # type: ignore[no-untyped-def]
    """The entry of the code point whose first byte, not ASCII, is at `index`, and its size in bytes."""
    first = np.int64(data[index])
    left = end - index
    if 0xC2 <= first < 0xE0 and left > 1 and data[index + 1] & 0xC0 == 0x80:
        return entries[(first & 0x1F) << 6 | data[index + 1] & 0x3F], 2
    if first & 0xF0 == 0xE0 and left > 2 and data[index + 1] & 0xC0 == 0x80 and data[index + 2] & 0xC0 == 0x80:
        code = (first & 0x0F) << 12 | (data[index + 1] & 0x3F) << 6 | data[index + 2] & 0x3F
        # What two bytes can say must not be said in three. The table knows surrogates as SLOW.
        return (entries[code] if code >= 0x800 else _MALFORMED), 3
    if first == 0xF0 and left > 3 and data[index + 1] & 0xC0 == 0x80 and data[index + 2] & 0xC0 == 0x80:
        code = (data[index + 1] & 0x3F) << 12 | (data[index + 2] & 0x3F) << 6 | data[index + 3] & 0x3F
        if 0x10000 <= code < COVERED and data[index + 3] & 0xC0 == 0x80:
            return entries[code], 4
    return _MALFORMED, 1


@inlined
def _class(entry):  # type: ignore[no-untyped-def]
    return np.int64((entry >> _CLASS_AT) & _THREE_BITS)


@inlined
def _continues(data, index, end, folding, entries):  # type: ignore[no-untyped-def]
    """Whether the word goes on after an apostrophe: a part of a word follows, perhaps behind ignored ones."""
    while index < end:
        folded = folding[data[index]]
        if folded != ASCII_NOT:
            return folded > ASCII_NOT
        entry, size = _entry(data, index, end, entries)
        kind = _class(entry)
        if kind != IGNORED:
            return kind == WORD
        index += size
    return False


@inlined
def _undecided(entry, last):  # type: ignore[no-untyped-def]
    """Whether normalisation may change a code point because of the one before it."""
    composes = entry & _COMPOSING and last & _OPEN
    moves = entry & _MOVING and (last >> _ORDER_AT) & _SIX_BITS > (entry >> _ORDER_AT) & _SIX_BITS
    return composes or moves or _class(entry) == SLOW


@inlined
def _following(entry, last):  # type: ignore[no-untyped-def]
    """What the next code point finds before it: a mark leaves the starter before it open."""
    return entry | (last & _OPEN if entry & _MOVING else _NONE)


@inlined
def _eight(data, index):  # type: ignore[no-untyped-def]
    """Eight bytes at once, the first one lowest. Written so that it becomes one load."""
    at = np.uint64(index)
    low = np.uint32(data[at]) | np.uint32(data[at + _ONE]) << 8
    low |= np.uint32(data[at + _TWO]) << 16 | np.uint32(data[at + _THREE]) << 24
    high = np.uint32(data[at + _FOUR]) | np.uint32(data[at + _FIVE]) << 8
    high |= np.uint32(data[at + _SIX]) << 16 | np.uint32(data[at + _SEVEN]) << 24
    return np.uint64(low) | np.uint64(high) << _HALF


@inlined
def _within(eight, low, high):  # type: ignore[no-untyped-def]
    """The highest bit of every byte, below 128, that lies between two others."""
    return (eight + (_TOPS - _EVERY * low)) & ~(eight + (_TOPS - _EVERY * (high + _ONE)))


@inlined
def _append(folded, more, packed, size, chunks, at):  # type: ignore[no-untyped-def]
    """Add some bytes, up to eight, to a word: what is packed, the word's size, the place of its next chunk."""
    shift = np.uint64(8 * (size & 7))
    packed |= folded << shift
    if (size & 7) + more >= 8:
        chunks[at] = packed
        at += 1
        # In two steps, because a shift by all 64 bits is not defined.
        packed = (folded >> _ONE) >> (_LAST_BIT - shift)
    return packed, size + more, at


@inlined
def _finish(packed, size, chunks, at, sizes, count):  # type: ignore[no-untyped-def]
    """End a word, if there is one: the place of the next chunk, and how many words there are."""
    chunks[at] = packed
    sizes[count] = size
    return at + (1 if size & 7 else 0), count + (1 if size else 0)


@kernel
def cut_words(data, start, end, codes, chunks, sizes):  # type: ignore[no-untyped-def]
    """Cut `data[start:end]`: the chunks and sizes of its words are written, their number returned, or UNDECIDED."""
    folding, entries = codes
    index, at, count, size, packed = start, 0, 0, 0, _NONE
    edge, last, swift = start, _AFTER_ASCII, min(end, len(data) - 8)
    while index < end:
        if index < swift:
            eight = _eight(data, index)
            letters = _within((eight | _SMALL) & _LOW, _A, _Z) & _TOPS
            others = (_within(eight & _LOW, _ZERO, _NINE) | _within(eight & _LOW, _UNDERSCORE, _UNDERSCORE)) & _TOPS
            run = (letters | others) & ~eight
            more = min(lowest_bit(~run & _TOPS) >> 3 if run != _TOPS else 8, end - index)
            if more:
                folded = eight | letters >> _TWO
                if more < 8:
                    folded &= (_ONE << np.uint64(8 * more)) - _ONE
                packed, size, at = _append(folded, more, packed, size, chunks, at)
                index += more
                if more == 8:
                    continue
                if index == end:
                    break
        first = folding[data[index]]
        if first > ASCII_NOT:
            packed, size, at = _append(np.uint64(first), 1, packed, size, chunks, at)
            index += 1
            continue
        if first == ASCII_SEPARATOR:
            at, count = _finish(packed, size, chunks, at, sizes, count)
            packed, size = _NONE, 0
            index += 1
            continue
        entry, kind = _NONE, APOSTROPHE
        if first == ASCII_NOT:
            if edge != index:
                last = _AFTER_ASCII
            entry, width = _entry(data, index, end, entries)
            if _undecided(entry, last):
                return UNDECIDED
            kind = _class(entry)
            index += width
            edge = index
            if kind == IGNORED:
                continue
            last = _following(entry, last)
        else:
            index += 1
        folded, width = entry & _BYTES, np.int64((entry >> _SIZE_AT) & _THREE_BITS)
        if kind == WORD:
            packed, size, at = _append(folded, width, packed, size, chunks, at)
            continue
        if kind == APOSTROPHE and size > 0 and _continues(data, index, end, folding, entries):
            packed, size, at = _append(_APOSTROPHE, 1, packed, size, chunks, at)
            continue
        at, count = _finish(packed, size, chunks, at, sizes, count)
        packed, size = _NONE, 0
        if kind == UNSPACED:
            packed, size, at = _append(folded, width, packed, size, chunks, at)
            at, count = _finish(packed, size, chunks, at, sizes, count)
            packed, size = _NONE, 0
    at, count = _finish(packed, size, chunks, at, sizes, count)
    return count
