"""The tokenizer's table of code points: how each one affects the words around it.

In: the reference function `runnel.algebra.values.words.words`, which is called for every code point that occurs. Out:
64 bits per code point: its class, the UTF-8 of its folded form, and how it interacts with neighbors in normalization.
A code point that the table cannot describe alone has the class SLOW, and `words` splits the texts that contain it.

The table is exact because `words` normalizes (NFC), folds and normalizes again. Folding works character by character.
Normalization does so too, unless a character composes with a preceding one or marks are out of order (Unicode
Standard Annex 15, section 9, the quick check). Both can be detected from the character and the last one before it.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import NamedTuple

import numpy as np

from runnel.algebra.values.words import words
from runnel.arrays import Array

COVERED = 0x40000
"""The number of code points in the table. Above are only variation selectors, tags and private use."""

SLOW, SEPARATOR, WORD, UNSPACED, APOSTROPHE, IGNORED = range(6)
"""The classes. An UNSPACED code point is a word of its own. An IGNORED one does not end a word. An APOSTROPHE ends a
word except in n't."""

BYTES_BITS = 48
SIZE_SHIFT, CLASS_SHIFT, ORDER_SHIFT, MOVING_SHIFT, COMPOSING_SHIFT, OPEN_SHIFT = 48, 51, 54, 60, 61, 62
"""The fields of an entry, from its lowest bit: the bytes of the folded form, their number, the class, the rank of the
last character among marks, whether the character may move before preceding marks, whether it may compose with a
preceding character, and whether a following character may compose with it."""

ASCII_SEPARATOR, ASCII_NOT = range(2)
"""The values in the table of bytes for a byte that separates words, and for a byte that the table of code points
decides. The value of any other byte is the folded byte."""

_BLOCK = 256
_FIRST_BLOCKS = "\u00e9\u0161\u2019"
"""One character of each block that is filled in at the start: Latin letters and punctuation."""


class CodePoints(NamedTuple):
    """The tables of bytes and of code points, as kernels read them."""

    folding: Array
    entries: Array


class CodePointTable:
    """The tables of a process. A block of code points is SLOW until `compose` gets a text that contains one."""

    def __init__(self) -> None:
        # Pages that are never written occupy no memory.
        self.arrays = CodePoints(_ascii(), np.zeros(COVERED, dtype=np.uint64))
        self._learned: set[int] = set()
        self._learn(_FIRST_BLOCKS)

    def compose(self, text: str) -> str:
        """Fill in the code points of a text, and return it without ignored characters and composed.

        The result has the same words, because `words` does both first, but fewer undecided characters.
        """
        self._learn(text)
        kinds = {
            code: int(self.arrays.entries[code]) >> CLASS_SHIFT for code in map(ord, set(text)) if code < COVERED
        }
        ignored = {code: None for code, kind in kinds.items() if kind == IGNORED}
        return unicodedata.normalize("NFC", text.translate(ignored) if ignored else text)

    def _learn(self, text: str) -> None:
        """Fill in the blocks of all characters of a text.

        Other threads may read the table or fill in the same block at the same time: an entry is written atomically
        and always with the same value.
        """
        for block in {ord(character) // _BLOCK for character in set(text)} - self._learned:
            codes = range(block * _BLOCK, min((block + 1) * _BLOCK, COVERED))
            characters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
            for character, split in zip(characters, _split_each(characters), strict=True):
                self.arrays.entries[ord(character)] = _entry(character, split)
            self._learned.add(block)


@cache
def code_points() -> CodePointTable:
    """Return the table of this process.

    >>> table = code_points()
    >>> chr(table.arrays.folding[ord("A")]), int(table.arrays.entries[0xAD]) >> CLASS_SHIFT == IGNORED
    ('a', True)
    """
    return CodePointTable()


def _split_each(characters: list[str]) -> list[list[str]]:
    """Return the result of `words` for each character between two letters q, which composes with nothing."""
    splits: list[list[str]] = [[]]
    for word in words(" 0 ".join(f"q{character}q" for character in characters)):
        if word == "0":
            splits.append([])
        else:
            splits[-1].append(word)
    return splits if characters else []


def _entry(character: str, split: list[str]) -> int:
    """Return the entry of a character. `split` is the result of `words` for the character between two letters."""
    composition = _composition()
    kind, folded = _class(character, split)
    normal = unicodedata.normalize("NFC", character)
    final = unicodedata.normalize("NFC", normal.casefold())
    # A character that may move or compose must not also change by itself.
    is_stable = character == normal == final or composition.joining.isdisjoint((character, normal[0], final[0]))
    data = folded.encode()
    if kind == SLOW or not is_stable or len(data) > BYTES_BITS // 8:
        return SLOW
    # A later mark may move before the marks that a composed character contains.
    opens = not composition.first.isdisjoint(unicodedata.normalize("NFD", normal + final))
    order = max(composition.ranks.get(last, 0) for last in (normal[-1], final[-1]))
    bits = int.from_bytes(data, "little") | len(data) << SIZE_SHIFT | kind << CLASS_SHIFT | order << ORDER_SHIFT
    bits |= (character in composition.ranks) << MOVING_SHIFT | (character in composition.second) << COMPOSING_SHIFT
    return bits | opens << OPEN_SHIFT


def _class(character: str, split: list[str]) -> tuple[int, str]:
    """Return the class of a character and its folded form in a word."""
    match split:
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
    """The characters that compose, as the first or the second of a pair, and the ranks of marks."""

    first: frozenset[str]
    second: frozenset[str]
    ranks: dict[str, int]
    joining: frozenset[str]
    """All characters that may compose with a preceding character or move before it."""


@cache
def _composition() -> _Composition:
    """Return all characters that compose. Some of them never do; those only cost time."""
    first, second = set[str](), set[str]()
    for code in range(COVERED):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first.add(chr(int(parts[0], 16)))
            second.add(chr(int(parts[1], 16)))
    # Hangul composes by arithmetic (Unicode Standard, section 3.12), so its pairs are not in the decompositions.
    first.update(map(chr, (*range(0x1100, 0x1113), *range(0xAC00, 0xD7A4, 28))))
    second.update(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))
    orders = {chr(code): order for code in range(COVERED) if (order := unicodedata.combining(chr(code)))}
    rank_of = {order: rank for rank, order in enumerate(sorted(set(orders.values())), start=1)}
    ranks = {mark: rank_of[order] for mark, order in orders.items()}
    return _Composition(frozenset(first), frozenset(second), ranks, frozenset(second | ranks.keys()))


def _ascii() -> Array:
    """Return the table of bytes."""
    table = np.full(256, ASCII_NOT, dtype=np.uint8)
    for code in range(128):
        kind, folded = _class(chr(code), words(f"q{chr(code)}q"))
        table[code] = ASCII_NOT if kind == APOSTROPHE else ord(folded) if kind == WORD else ASCII_SEPARATOR
    table.flags.writeable = False
    return table
