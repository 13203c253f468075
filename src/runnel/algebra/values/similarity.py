"""The Jaccard similarity of texts, over their sets of distinct words.

In: the words of two texts. Out: |common| / |all|, as an exact fraction, so that a bound of 0.6 means three fifths.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

DEFAULT_LEAST = Fraction(1, 2)
"""The similarity that `similar to` requires without `at least`."""


def similarity(words: Collection[str], other_words: Collection[str]) -> Fraction:
    """Return the similarity of two texts, which is 0 for two texts without words.

    >>> similarity(["rock", "am", "ring"], ["rock", "im", "park"]), similarity([], [])
    (Fraction(1, 5), Fraction(0, 1))
    """
    left, right = frozenset(words), frozenset(other_words)
    total = len(left | right)
    return Fraction(len(left & right), total) if total else Fraction(0)


def similar(words: Collection[str], other_words: Collection[str], least: Fraction) -> bool:
    """Return whether two texts have at least the similarity `least`.

    >>> similar(["a", "b", "c"], ["a", "b", "c", "d", "e"], Fraction(6, 10))
    True
    """
    return similarity(words, other_words) >= least


def least_common(count: int, least: Fraction) -> int:
    """Return how many of `count` distinct words a text must contain to have at least the similarity `least`.

    The number of common words is at least `least` times the number of all words, which is at least `count`.


    >>> least_common(5, Fraction(1, 2)), least_common(4, Fraction(1, 2))
    (3, 2)
    """
    return -((-least.numerator * count) // least.denominator)
