"""What each code point does to the words around it, as a table for the tokeniser.

In: the definition of words (`runnel.algebra.text.words`), which is asked about every code point. Out: 64 bits for
each code point below `COVERED`: its class, the UTF-8 of what it is folded to, and how it meets its neighbours under
normalisation. Whatever the table cannot say of a code point alone is SLOW: a text that holds it is cut by `words`.

Why a table is exact. `words` normalises (NFC), folds and normalises again. Folding goes character by character.
Normalisation does too, unless a character composes with one before it or marks stand out of order (Unicode Standard
Annex 15, section 9, the quick check); both can be seen from the character and from the last one before it.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import NamedTuple

import numpy as np

from runnel.algebra.text import words
from runnel.plan.arrays import Array

COVERED = 0x20000
"""Code points from here on (rare Han characters, private use) are SLOW, so that the table stays small."""

SEPARATOR, WORD, UNSPACED, APOSTROPHE, IGNORED, SLOW = range(6)
"""The classes. An UNSPACED one is a word of its own, an IGNORED one does not cut a word."""

BYTES_BITS = 48
SIZE_SHIFT, CLASS_SHIFT, ORDER_SHIFT, MOVING_SHIFT, COMPOSING_SHIFT, OPEN_SHIFT = 48, 51, 54, 60, 61, 62
"""An entry, from its lowest bit: the bytes of the folded form, their number, the class, the rank of the
canonical combining class of the last character, whether it may move before marks that stand before it, whether it may compose with a character
before it, and whether one after it may compose with it."""

ASCII_SEPARATOR, ASCII_APOSTROPHE, ASCII_NOT = range(3)
"""What the table of bytes says of a byte that is no part of a word; of others, it says the folded byte."""


class CodePoints(NamedTuple):
    """The tables, as the kernels take them."""

    ascii: Array
    entries: Array


class _Composition(NamedTuple):
    """Which characters compose: the first ones and the second ones of all pairs; and the ranks of marks."""

    first: frozenset[str]
    second: frozenset[str]
    ranks: dict[int, int]


@cache
def code_points() -> CodePoints:
    """The tables, made once per process.

    >>> tables = code_points()
    >>> chr(tables.ascii[ord("A")]), int(tables.ascii[ord("-")]), tables.entries[0xAD] >> CLASS_SHIFT == IGNORED
    ('a', 0, np.True_)
    """
    composition = _composition()
    characters = [chr(code) for code in range(COVERED) if _assigned(code)]
    entries = np.full(COVERED, SLOW << CLASS_SHIFT, dtype=np.uint64)
    for character, cut in zip(characters, _cut_alone(characters), strict=True):
        entries[ord(character)] = _entry(character, cut, composition)
    entries.flags.writeable = False
    return CodePoints(_ascii(), entries)


def _assigned(code: int) -> bool:
    return unicodedata.category(chr(code)) not in ("Cs", "Cn", "Co")


def _cut_alone(characters: list[str]) -> list[list[str]]:
    """What `words` makes of each character between two letters (q, which composes with nothing)."""
    lines = " 0 ".join(f"q{character}q" for character in characters)
    found: list[list[str]] = [[]]
    for word in words(lines):
        if word == "0":
            found.append([])
        else:
            found[-1].append(word)
    return found


def _entry(character: str, cut: list[str], composition: _Composition) -> int:
    kind, folded = _class(character, cut)
    if kind in (SLOW, IGNORED):
        return kind << CLASS_SHIFT
    normal = unicodedata.normalize("NFC", character)
    final = unicodedata.normalize("NFC", normal.casefold())
    data = folded.encode()
    # What may move or compose must at least stay what it is.
    unclear = any(_joins(one, composition) for one in (character, normal[0], final[0])) and not (
        character == normal == final
    )
    if unclear or len(data) > BYTES_BITS // 8:
        return SLOW << CLASS_SHIFT
    order = max(composition.ranks[unicodedata.combining(one)] for one in (normal[-1], final[-1]))
    # A later mark may move in front of those that a composed character is made of.
    opens = any(one in composition.first for one in unicodedata.normalize("NFD", normal + final))
    flags = (unicodedata.combining(character) != 0) << MOVING_SHIFT | opens << OPEN_SHIFT
    flags |= (character in composition.second) << COMPOSING_SHIFT
    return (
        int.from_bytes(data, "little") | len(data) << SIZE_SHIFT | kind << CLASS_SHIFT | order << ORDER_SHIFT | flags
    )


def _class(character: str, cut: list[str]) -> tuple[int, str]:
    """The class of a character and what stands for it in a word."""
    match cut:
        case ["qq"]:
            return IGNORED, ""
        case ["q", "q"]:
            return SEPARATOR, ""
        case ["q'q"] if not words(character):
            return APOSTROPHE, "'"
        case ["q", word, "q"] if len(word) == 1:
            return UNSPACED, word
        case [word] if word.startswith("q") and word.endswith("q"):
            return WORD, word[1:-1]
        case _:
            return SLOW, ""


def _joins(character: str, composition: _Composition) -> bool:
    """Whether a character may compose with, or move before, what stands before it."""
    return unicodedata.combining(character) != 0 or character in composition.second


@cache
def _composition() -> _Composition:
    """The pairs that compose, and some that never do: too many only cost time."""
    first, second = set[str](), set[str]()
    for code in range(COVERED):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first.add(chr(int(parts[0], 16)))
            second.add(chr(int(parts[1], 16)))
    # Hangul composes by arithmetic (Unicode Standard, section 3.12), so its pairs are in no table.
    first.update(map(chr, (*range(0x1100, 0x1113), *range(0xAC00, 0xD7A4, 28))))
    second.update(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))
    ranks = {
        order: rank
        for rank, order in enumerate(sorted({unicodedata.combining(chr(code)) for code in range(COVERED)}))
    }
    return _Composition(frozenset(first), frozenset(second), ranks)


def _ascii() -> Array:
    """The table of bytes."""
    table = np.full(256, ASCII_NOT, dtype=np.uint8)
    for code in range(128):
        kind, folded = _class(chr(code), words(f"q{chr(code)}q"))
        table[code] = ASCII_APOSTROPHE if kind == APOSTROPHE else ord(folded) if kind == WORD else ASCII_SEPARATOR
    table.flags.writeable = False
    return table
