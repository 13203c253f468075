"""Splitting of texts into words, for `contains` and for all indexes on words.

A word is a sequence of letters, digits, combining marks and connectors. An apostrophe separates words, as other
punctuation does: "OpenAI's" is `openai` and `s`, "L'avion" is `l` and `avion`. Only the English contraction n't stays
in its word, because "won't" is not a form of "won". Each character of a script without spaces (Han, Hiragana,
Katakana, Thai, Lao, Khmer, Myanmar) is a word, so that a phrase finds it anywhere. Words are compared after full case
folding, in NFC.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

_UNSPACED = (
    # Thai, Lao, Myanmar, Khmer: letters, vowels and tones. Their digits form words like other digits.
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ebd\u0ec0-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u108f\u109a-\u109d"
    "\u1780-\u17b3\u17b6-\u17d3\u17d7\u17dc-\u17dd\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a-\uaa7f"
    # Han, Hiragana, Katakana.
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U0001b000-\U0001b16f\U00020000-\U000323af"
)
"""Characters of scripts without spaces between words."""

_IGNORED = dict.fromkeys(
    [
        *(0x00AD, 0x034F, 0x061C, 0x17B4, 0x17B5, 0x2060, 0xFEFF),
        *(*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
        *(*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    ]
)
"""Invisible characters, which do not separate words: soft hyphens, zero-width characters, direction marks, variation
selectors."""

_APOSTROPHES = "'\u2019\u02bc\uff07"
"""The apostrophes: ASCII, typographic, modifier letter, full width."""

_AS_APOSTROPHE = str.maketrans(_APOSTROPHES, "'" * len(_APOSTROPHES))


@cache
def _letter_class() -> str:
    """Return a regular expression for one character of a word."""
    return rf"(?:(?![{_UNSPACED}{_APOSTROPHES}])[\w{_mark_ranges()}])"


@cache
def _pattern() -> re.Pattern[str]:
    letters = _letter_class()
    return re.compile(rf"{letters}+(?:(?<=n)[{_APOSTROPHES}]t(?!{letters}))?|[{_UNSPACED}]", re.UNICODE)


@cache
def _wild_pattern() -> re.Pattern[str]:
    wild = rf"(?:{_letter_class()}|[*?])"
    return re.compile(rf"{wild}+(?:(?<=n)[{_APOSTROPHES}]t\**(?!{wild}))?|[{_UNSPACED}]", re.UNICODE)


@cache
def _misplaced_wildcard() -> re.Pattern[str]:
    return re.compile(rf"[{_UNSPACED}][*?]|[*?][{_UNSPACED}]")


def _mark_ranges() -> str:
    """Return the combining marks, which `\\w` does not include, as ranges for a character class."""
    ranges: list[tuple[int, int]] = []
    for code in (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges)


def words(text: str) -> list[str]:
    """Return the words of a text in order, case-folded.

    >>> words("Muse's NEW album: straße, 東京!")
    ['muse', 's', 'new', 'album', 'strasse', '東', '京']
    """
    if not text.isascii():
        return [word.translate(_AS_APOSTROPHE) for word in _pattern().findall(_fold(text.translate(_IGNORED)))]
    return _ASCII.findall(text.lower())


_ASCII = re.compile(r"\w+(?:(?<=[nN])'[tT](?!\w))?", re.ASCII)


def wild_words(text: str) -> list[str]:
    """Return the words of a pattern, as `words` does, with `*` and `?` as additional letters.

    Raise ValueError if a wildcard is next to a character of a script without spaces, which is a word by itself.

    >>> wild_words("Conc* H?LL, straß*!")
    ['conc*', 'h?ll', 'strass*']
    """
    folded = _fold(text.translate(_IGNORED))
    if stray := _misplaced_wildcard().search(folded):
        raise ValueError(stray[0])
    return [word.translate(_AS_APOSTROPHE) for word in _wild_pattern().findall(folded)]


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


class WordSpan(NamedTuple):
    """A case-folded word, and its offsets in the text."""

    word: str
    start: int
    end: int


def word_spans(text: str) -> list[WordSpan]:
    """Return the words of a text with their offsets. `words` returns the same words without offsets, faster.

    Case folding and normalization change lengths, so the text is folded in the smallest segments that can be
    normalized independently.

    >>> word_spans("Straße (soft\u00adhyphen)")
    [WordSpan(word='strasse', start=0, end=6), WordSpan(word='softhyphen', start=8, end=19)]
    """
    if text.isascii():
        return [WordSpan(match[0].lower(), *match.span()) for match in _ASCII.finditer(text)]
    folded, starts, ends = _fold_with_offsets(text)
    return [
        WordSpan(match[0].translate(_AS_APOSTROPHE), starts[match.start()], ends[match.end() - 1])
        for match in _pattern().finditer(folded)
    ]


def _fold_with_offsets(text: str) -> tuple[str, list[int], list[int]]:
    """Return the folded text, and for each of its characters the offsets of the source segment that it came from.

    Characters at the start of a segment that folding does not change keep their own offsets, because they may form a
    word without the rest of the segment.
    """
    visible = [(index, character) for index, character in enumerate(text) if ord(character) not in _IGNORED]
    boundaries = [index for index, (_, character) in enumerate(visible) if index == 0 or _is_boundary(character)]
    boundaries.append(len(visible))
    segments: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for first, last in pairwise(boundaries):
        segment = _fold("".join(character for _, character in visible[first:last]))
        segments.append(segment)
        while first < last and segment and segment[0] == visible[first][1]:
            starts.append(visible[first][0])
            ends.append(visible[first][0] + 1)
            first, segment = first + 1, segment[1:]
        starts += [visible[first][0]] * len(segment) if segment else []
        ends += [visible[last - 1][0] + 1] * len(segment)
    return "".join(segments), starts, ends


@lru_cache(maxsize=4096)
def _is_boundary(character: str) -> bool:
    """Return whether neither a character nor its folded form can be composed with a preceding character."""
    first = unicodedata.normalize("NFD", unicodedata.normalize("NFC", character).casefold())[0]
    parts = unicodedata.normalize("NFD", character)[0], first
    return not any(unicodedata.combining(part) or part in _composable_characters() for part in parts)


@cache
def _composable_characters() -> frozenset[str]:
    """Return the non-combining characters that NFC can compose with a preceding character, such as Hangul vowels."""
    jamo = map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))
    composed = (unicodedata.decomposition(chr(code)).split() for code in range(0x20000))
    return frozenset(jamo) | {chr(int(parts[1], 16)) for parts in composed if len(parts) == 2 and parts[0][0] != "<"}


def contains_phrase(text_words: list[str], phrase: tuple[str, ...]) -> bool:
    """Return whether a text contains the words of a phrase, adjacent and in this order.

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
