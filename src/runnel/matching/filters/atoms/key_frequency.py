"""How many items are expected to have a key: a guess until statistics are there.

It decides speed, never answers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate

from runnel.arrays import decode_text

_KINDS = {b"t": 0.01, b"n": 0.03, b"b": 0.5, b"e": 0.9, b"g": 0.002}
_LEAST = 0.0005
_LAST = chr(0x10FFFF)


class KnownWords:
    """The part of all items that hold a word, where it is known; and what follows for prefixes."""

    def __init__(self, frequencies: Mapping[str, float]) -> None:
        self._frequencies = frequencies

    def word(self, word: str) -> float | None:
        """The part of all items that hold a word."""
        return self._frequencies.get(word)

    def prefix(self, prefix: str) -> float | None:
        """The part of all items expected to hold a word that begins like this, as if words knew nothing of others.

        >>> known = KnownWords({"concert": 0.2, "concrete": 0.1, "cone": 0.5})
        >>> round(known.prefix("conc"), 3), known.prefix("rock")
        (0.259, None)
        """
        words, sums = self._sorted
        first, last = bisect_left(words, prefix), bisect_left(words, prefix + _LAST)
        return 1.0 - math.exp(sums[first] - sums[last]) if first < last else None

    @cached_property
    def _sorted(self) -> tuple[list[str], list[float]]:
        """The words in order, and the sum of the parts of all words before each."""
        words = sorted(self._frequencies)
        return words, list(accumulate((self._frequencies[word] for word in words), initial=0.0))


NOTHING_KNOWN = KnownWords({})


def estimate(token: bytes, known: KnownWords) -> float:
    """The part of all items that is expected to have a token; long words are rare, short ones are not.

    >>> estimate(b"wthe", NOTHING_KNOWN) > estimate(b"wgovernment", NOTHING_KNOWN)
    True
    >>> estimate(b"wrock", KnownWords({"rock": 0.25})), estimate(b"pro", KnownWords({"rock": 0.0}))
    (0.25, 0.0005)
    """
    match token[:1]:
        case b"w":
            word = decode_text(token[1:])
            share = known.word(word)
            return _guess_word(word) if share is None else share
        case b"p":
            prefix = decode_text(token[1:])
            share = known.prefix(prefix)
            return _guess_prefix(prefix) if share is None else max(_LEAST, share)
        case kind:
            return _KINDS[kind]


def _guess_word(word: str) -> float:
    if len(word) == 1 and not word.isascii():
        # A character of an unspaced script stands for a syllable or a word.
        return 0.02
    return float(max(_LEAST, min(0.6, 1.2 / max(1, len(word)) ** 2.5)))


def _guess_prefix(prefix: str) -> float:
    """Several words begin alike, so a prefix is more frequent than a word of its length."""
    return float(max(_LEAST, min(0.8, 3.6 / max(1, len(prefix)) ** 2.5)))
