"""How many items are expected to have a key: a guess until statistics are there.

It decides speed, never answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from runnel.plan.arrays import decode_text

_KINDS = {b"t": 0.01, b"n": 0.03, b"b": 0.5, b"e": 0.9}


def estimate(token: bytes, frequencies: Mapping[str, float]) -> float:
    """The part of all items that is expected to have a token; long words are rare, short ones are not.

    >>> estimate(b"wthe", {}) > estimate(b"wgovernment", {}), estimate(b"wrock", {"rock": 0.25})
    (True, 0.25)
    """
    if token[:1] != b"w":
        return _KINDS[token[:1]]
    word = decode_text(token[1:])
    known = frequencies.get(word)
    if known is not None:
        return known
    if len(word) == 1 and not word.isascii():
        # A character of an unspaced script stands for a syllable or a word.
        return 0.02
    return float(max(0.0005, min(0.6, 1.2 / len(word) ** 2.5)))
