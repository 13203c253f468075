"""Words: how a text is cut, for `contains` and for every index built on it.

A word is a run of letters, digits, combining marks and connectors. An apostrophe separates words, as other
punctuation does: "OpenAI's" is `openai` and `s`, "L'avion" is `l` and `avion`. Only the English contraction n't stays
in its word, because "won't" is no form of "won". A character of a script written without spaces (Han, Hiragana,
Katakana, Thai, Lao, Khmer, Myanmar) is a word of its own, so that a phrase finds it anywhere. Words are compared
after full case folding, in NFC.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

_UNSPACED = (
    # Thai, Lao, Myanmar, Khmer: letters, vowels and tones, each by itself; their digits make words as others do.
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d"
    "\u1780-\u17b3\u17b6-\u17d3\u17d7\u17dc-\u17dd\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
    # Han, Hiragana, Katakana.
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U0001b000-\U0001b16f\U00020000-\U000323af"
)
"""Characters of the scripts that are written without spaces."""

_IGNORED = dict.fromkeys(
    [
        *(0x00AD, 0x034F, 0x061C, 0x17B4, 0x17B5, 0x2060, 0xFEFF),
        *(*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
        *(*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    ]
)
"""Soft hyphen, zero-width characters, marks of direction, selectors of a glyph: invisible, so they cut no word."""

_APOSTROPHES = "'\u2019\u02bc\uff07"
"""The characters that are written as an apostrophe: of ASCII, typographic, modifier letter, full width."""

_AS_APOSTROPHE = str.maketrans(_APOSTROPHES, "'" * len(_APOSTROPHES))


@cache
def _letters() -> str:
    """One character of a word, as a regular expression."""
    return rf"(?:(?![{_UNSPACED}{_APOSTROPHES}])[\w{_marks()}])"


@cache
def _pattern() -> re.Pattern[str]:
    letters = _letters()
    return re.compile(rf"{letters}+(?:(?<=n)[{_APOSTROPHES}]t(?!{letters}))?|[{_UNSPACED}]", re.UNICODE)


@cache
def _wild_pattern() -> re.Pattern[str]:
    wild = rf"(?:{_letters()}|[*?])"
    return re.compile(rf"{wild}+(?:(?<=n)[{_APOSTROPHES}]t\**(?!{wild}))?|[{_UNSPACED}]", re.UNICODE)


@cache
def _stray_pattern() -> re.Pattern[str]:
    return re.compile(rf"[{_UNSPACED}][*?]|[*?][{_UNSPACED}]")


def _marks() -> str:
    """The combining marks as ranges for a character class; Python's own word class leaves them out."""
    ranges: list[tuple[int, int]] = []
    for code in (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


def words(text: str) -> list[str]:
    """The words of a text, in order, folded for comparison.

    >>> words("Muse's NEW album: straße, 東京!")
    ['muse', 's', 'new', 'album', 'strasse', '東', '京']
    """
    if not text.isascii():
        return [word.translate(_AS_APOSTROPHE) for word in _pattern().findall(_folded(text.translate(_IGNORED)))]
    return _ASCII.findall(text.lower())


_ASCII = re.compile(r"\w+(?:(?<=[nN])'[tT](?!\w))?", re.ASCII)


def wild_words(text: str) -> list[str]:
    """The words of a pattern: as `words`, where `*` and `?` are letters of words too.

    ValueError where one of them stands beside a character that is a word of its own: it could stand for nothing.

    >>> wild_words("Conc* H?LL, straß*!")
    ['conc*', 'h?ll', 'strass*']
    """
    folded = _folded(text.translate(_IGNORED))
    if stray := _stray_pattern().search(folded):
        raise ValueError(stray[0])
    return [word.translate(_AS_APOSTROPHE) for word in _wild_pattern().findall(folded)]


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


class WordSpan(NamedTuple):
    """A word, and from where to where its characters stand in the text that it was cut from."""

    word: str
    start: int
    end: int


def word_spans(text: str) -> list[WordSpan]:
    """The words of a text with their places: `words` says the same words, faster.

    Folding and composing change lengths, so the text is folded in the smallest pieces that do not touch one another.

    >>> word_spans("Straße (soft\u00adhyphen)")
    [WordSpan(word='strasse', start=0, end=6), WordSpan(word='softhyphen', start=8, end=19)]
    """
    if text.isascii():
        return [WordSpan(found[0].lower(), *found.span()) for found in _ASCII.finditer(text)]
    folded, starts, ends = _folded_pieces(text)
    return [
        WordSpan(found[0].translate(_AS_APOSTROPHE), starts[found.start()], ends[found.end() - 1])
        for found in _pattern().finditer(folded)
    ]


def _folded_pieces(text: str) -> tuple[str, list[int], list[int]]:
    """The folded text, and for each of its characters the start and end of the piece that it came from.

    What a piece begins with and folding leaves alone stands for itself: it may be a word without what follows.
    """
    kept = [(index, character) for index, character in enumerate(text) if ord(character) not in _IGNORED]
    cuts = [at for at, (_, character) in enumerate(kept) if at == 0 or _begins(character)]
    cuts.append(len(kept))
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for first, last in pairwise(cuts):
        piece = _folded("".join(character for _, character in kept[first:last]))
        pieces.append(piece)
        while first < last and piece and piece[0] == kept[first][1]:
            starts.append(kept[first][0])
            ends.append(kept[first][0] + 1)
            first, piece = first + 1, piece[1:]
        starts += [kept[first][0]] * len(piece) if piece else []
        ends += [kept[last - 1][0] + 1] * len(piece)
    return "".join(pieces), starts, ends


@lru_cache(maxsize=4096)
def _begins(character: str) -> bool:
    """Whether a character, or what becomes of it, never melts with what stands before it."""
    first = unicodedata.normalize("NFD", unicodedata.normalize("NFC", character).casefold())[0]
    parts = unicodedata.normalize("NFD", character)[0], first
    return not any(unicodedata.combining(part) or part in _seconds() for part in parts)


@cache
def _seconds() -> frozenset[str]:
    """The characters that can be composed with one before them, beside those that combine: Hangul's, and a few."""
    jamo = map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))
    composed = (unicodedata.decomposition(chr(code)).split() for code in range(0x20000))
    return frozenset(jamo) | {chr(int(parts[1], 16)) for parts in composed if len(parts) == 2 and parts[0][0] != "<"}


def contains_phrase(text_words: list[str], phrase: tuple[str, ...]) -> bool:
    """Whether the phrase stands in the text, word next to word.

    >>> contains_phrase(words("the quick brown fox"), ("quick", "brown"))
    True
    """
    if len(phrase) == 1:
        return phrase[0] in text_words
    first, size = phrase[0], len(phrase)
    start = 0
    while True:
        try:
            start = text_words.index(first, start)
        except ValueError:
            return False
        if tuple(text_words[start : start + size]) == phrase:
            return True
        start += 1
