"""Similarity of texts, the one measure that conditions and joins use: Jaccard's, over sets of distinct words.

In: the words of two texts. Out: |common| / |all|, as an exact fraction, so that a bound of 0.6 means three fifths.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

DEFAULT_LEAST = Fraction(1, 2)
"""How similar is similar, where nothing is said."""


def similarity(one: Collection[str], other: Collection[str]) -> Fraction:
    """How much of their distinct words two texts share; two texts without words share nothing.

    >>> similarity(["rock", "am", "ring"], ["rock", "im", "park"]), similarity([], [])
    (Fraction(1, 5), Fraction(0, 1))
    """
    left, right = frozenset(one), frozenset(other)
    everything = len(left | right)
    return Fraction(len(left & right), everything) if everything else Fraction(0)


def similar(one: Collection[str], other: Collection[str], least: Fraction) -> bool:
    """Whether two texts are at least this similar.

    >>> similar(["a", "b", "c"], ["a", "b", "c", "d", "e"], Fraction(6, 10))
    True
    """
    return similarity(one, other) >= least


def least_common(count: int, least: Fraction) -> int:
    """How many of `count` distinct words a text must have to be this similar, since it shares least · |all| of them.

    >>> least_common(5, Fraction(1, 2)), least_common(4, Fraction(1, 2))
    (3, 2)
    """
    return -((-least.numerator * count) // least.denominator)
