"""Words: how a text is cut, for `contains` and for every index built on it.

A word is a run of letters, digits, combining marks and connectors; an apostrophe between two of them belongs to the
word. A character of a script written without spaces (Han, Hiragana, Katakana) is a word of its own, so that a
phrase finds it anywhere. Words are compared after full case folding, in NFC.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_UNSPACED = (
    "\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U0001b000-\U0001b16f\U00020000-\U000323af"
)
"""Han, Hiragana and Katakana."""

_IGNORED = dict.fromkeys((0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
"""Soft hyphen, zero-width characters: invisible, so they do not cut a word."""


@cache
def _pattern() -> re.Pattern[str]:
    letters = rf"(?:(?![{_UNSPACED}])[\w{_marks()}])"
    return re.compile(rf"{letters}+(?:['’]{letters}+)*|[{_UNSPACED}]", re.UNICODE)


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
    ["muse's", 'new', 'album', 'strasse', '東', '京']
    """
    if not text.isascii():
        text = text.translate(_IGNORED)
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
        return [word.replace("’", "'") for word in _pattern().findall(text)]
    return _ASCII.findall(text.lower())


_ASCII = re.compile(r"\w+(?:'\w+)*", re.ASCII)


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
