"""Estimates of the share of items that have a key: from statistics if there are any, otherwise guesses.

The estimates affect only speed, never the matches.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate

from runnel.arrays import decode_text

_KINDS = {b"t": 0.01, b"n": 0.03, b"b": 0.5, b"e": 0.9, b"g": 0.002}
_MIN_SHARE = 0.0005
_LAST_CHARACTER = chr(0x10FFFF)


class KnownWords:
    """The known shares of items that contain a word, and the shares of prefixes computed from them."""

    def __init__(self, frequencies: Mapping[str, float]) -> None:
        self._frequencies = frequencies

    def word(self, word: str) -> float | None:
        """Return the share of items that contain a word, or None if it is not known."""
        return self._frequencies.get(word)

    def prefix(self, prefix: str) -> float | None:
        """Return the expected share of items that contain a word with this prefix, or None if no word is known.

        The estimate assumes that words occur independently of each other.

        >>> known = KnownWords({"concert": 0.2, "concrete": 0.1, "cone": 0.5})
        >>> round(known.prefix("conc"), 3), known.prefix("rock")
        (0.259, None)
        """
        words, sums = self._sorted
        first, last = bisect_left(words, prefix), bisect_left(words, prefix + _LAST_CHARACTER)
        return 1.0 - math.exp(sums[first] - sums[last]) if first < last else None

    @cached_property
    def _sorted(self) -> tuple[list[str], list[float]]:
        """The words in order, and for each the sum of the shares of all words before it."""
        words = sorted(self._frequencies)
        return words, list(accumulate((self._frequencies[word] for word in words), initial=0.0))


NOTHING_KNOWN = KnownWords({})


def estimate(token: bytes, known: KnownWords) -> float:
    """Return the expected share of items that have a token. A long unknown word counts as rarer than a short one.

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
            return _guess_prefix(prefix) if share is None else max(_MIN_SHARE, share)
        case kind:
            return _KINDS[kind]


def _guess_word(word: str) -> float:
    if len(word) == 1 and not word.isascii():
        # In scripts without spaces, one character is a syllable or a word.
        return 0.02
    return float(max(_MIN_SHARE, min(0.6, 1.2 / max(1, len(word)) ** 2.5)))


def _guess_prefix(prefix: str) -> float:
    """Guess the share of a prefix, which is higher than that of a word of the same length."""
    return float(max(_MIN_SHARE, min(0.8, 3.6 / max(1, len(prefix)) ** 2.5)))
