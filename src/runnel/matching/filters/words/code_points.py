"""What each code point does to the words around it, as a table for the tokeniser.

In: the definition of words (`runnel.algebra.values.words.words`), which is asked about every code point that occurs.
Out: 64 bits for each code point: its class, the UTF-8 of what it is folded to, and how it meets its neighbours under
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

from runnel.algebra.values.words import words
from runnel.arrays import Array

COVERED = 0x40000
"""The code points of the table; above them are only selectors of glyphs and private use."""

SLOW, SEPARATOR, WORD, UNSPACED, APOSTROPHE, IGNORED = range(6)
"""The classes. An UNSPACED one is a word of its own, an IGNORED one does not cut a word, an APOSTROPHE does except in
n't."""

BYTES_BITS = 48
SIZE_SHIFT, CLASS_SHIFT, ORDER_SHIFT, MOVING_SHIFT, COMPOSING_SHIFT, OPEN_SHIFT = 48, 51, 54, 60, 61, 62
"""An entry, from its lowest bit: the bytes of the folded form, their number, the class, the rank of the last
character among marks, whether it may move before marks that stand before it, whether it may compose with a character
before it, and whether one after it may compose with it."""

ASCII_SEPARATOR, ASCII_NOT = range(2)
"""What the table of bytes says of a byte that separates words, and of one that the table of code points decides; of
others, it says the folded byte."""

_BLOCK = 256
_FIRST_BLOCKS = "\u00e9\u0161\u2019"
"""Characters of the blocks that are learned at once: Latin letters and punctuation."""


class CodePoints(NamedTuple):
    """The tables, as the kernels take them: of bytes, of code points."""

    folding: Array
    entries: Array


class CodePointTable:
    """The tables of a process. A block of code points is learned when a text holds one of them; until then, SLOW."""

    def __init__(self) -> None:
        # Pages that nothing is written to take no memory.
        self.arrays = CodePoints(_ascii(), np.zeros(COVERED, dtype=np.uint64))
        self._learned: set[int] = set()
        self._learn(_FIRST_BLOCKS)

    def compose(self, text: str) -> str:
        """A text with the same words in which less is left undecided; all its code points are learned.

        `words` ignores and composes first, so doing that before changes nothing.
        """
        self._learn(text)
        kinds = {
            code: int(self.arrays.entries[code]) >> CLASS_SHIFT for code in map(ord, set(text)) if code < COVERED
        }
        ignored = {code: None for code, kind in kinds.items() if kind == IGNORED}
        return unicodedata.normalize("NFC", text.translate(ignored) if ignored else text)

    def _learn(self, text: str) -> None:
        """Fill in the blocks of all characters of a text.

        Others may read the table meanwhile, or learn the same: an entry is written at once, and always the same.
        """
        for block in {ord(character) // _BLOCK for character in set(text)} - self._learned:
            codes = range(block * _BLOCK, min((block + 1) * _BLOCK, COVERED))
            characters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
            for character, cut in zip(characters, _cut_alone(characters), strict=True):
                self.arrays.entries[ord(character)] = _entry(character, cut)
            self._learned.add(block)


@cache
def code_points() -> CodePointTable:
    """The table of this process.

    >>> table = code_points()
    >>> chr(table.arrays.folding[ord("A")]), int(table.arrays.entries[0xAD]) >> CLASS_SHIFT == IGNORED
    ('a', True)
    """
    return CodePointTable()


def _cut_alone(characters: list[str]) -> list[list[str]]:
    """What `words` makes of each character between two letters (q, which composes with nothing)."""
    found: list[list[str]] = [[]]
    for word in words(" 0 ".join(f"q{character}q" for character in characters)):
        if word == "0":
            found.append([])
        else:
            found[-1].append(word)
    return found if characters else []


def _entry(character: str, cut: list[str]) -> int:
    composition = _composition()
    kind, folded = _class(character, cut)
    normal = unicodedata.normalize("NFC", character)
    final = unicodedata.normalize("NFC", normal.casefold())
    # What may move or compose must at least stay what it is.
    steady = character == normal == final or composition.joining.isdisjoint((character, normal[0], final[0]))
    data = folded.encode()
    if kind == SLOW or not steady or len(data) > BYTES_BITS // 8:
        return SLOW
    # A later mark may move in front of those that a composed character is made of.
    opens = not composition.first.isdisjoint(unicodedata.normalize("NFD", normal + final))
    order = max(composition.ranks.get(last, 0) for last in (normal[-1], final[-1]))
    bits = int.from_bytes(data, "little") | len(data) << SIZE_SHIFT | kind << CLASS_SHIFT | order << ORDER_SHIFT
    bits |= (character in composition.ranks) << MOVING_SHIFT | (character in composition.second) << COMPOSING_SHIFT
    return bits | opens << OPEN_SHIFT


def _class(character: str, cut: list[str]) -> tuple[int, str]:
    """The class of a character and what stands for it in a word."""
    match cut:
        case ["qq"]:
            return IGNORED, ""
        case ["q", "q"]:
            return (APOSTROPHE, "'") if words(f"n{character}t") == ["n't"] else (SEPARATOR, "")
        case ["q", word, "q"] if len(word) == 1:
            return UNSPACED, word
        case [word] if len(word) > 2 and word[0] == word[-1] == "q":
            return WORD, word[1:-1]
        case _:
            return SLOW, ""


class _Composition(NamedTuple):
    """Which characters compose, as the first or as the second one of a pair, and the ranks of marks."""

    first: frozenset[str]
    second: frozenset[str]
    ranks: dict[str, int]
    joining: frozenset[str]
    """All that may compose with, or move before, what stands before it."""


@cache
def _composition() -> _Composition:
    """All pairs that compose, and some that never do: too many only cost time."""
    first, second = set[str](), set[str]()
    for code in range(COVERED):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first.add(chr(int(parts[0], 16)))
            second.add(chr(int(parts[1], 16)))
    # Hangul composes by arithmetic (Unicode Standard, section 3.12), so its pairs are in no table.
    first.update(map(chr, (*range(0x1100, 0x1113), *range(0xAC00, 0xD7A4, 28))))
    second.update(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))
    orders = {chr(code): order for code in range(COVERED) if (order := unicodedata.combining(chr(code)))}
    rank_of = {order: rank for rank, order in enumerate(sorted(set(orders.values())), start=1)}
    ranks = {mark: rank_of[order] for mark, order in orders.items()}
    return _Composition(frozenset(first), frozenset(second), ranks, frozenset(second | ranks.keys()))


def _ascii() -> Array:
    """The table of bytes."""
    table = np.full(256, ASCII_NOT, dtype=np.uint8)
    for code in range(128):
        kind, folded = _class(chr(code), words(f"q{chr(code)}q"))
        table[code] = ASCII_NOT if kind == APOSTROPHE else ord(folded) if kind == WORD else ASCII_SEPARATOR
    table.flags.writeable = False
    return table
