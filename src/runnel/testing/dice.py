"""Dice: random draws that are the same for the same seed, on every machine and with every numpy.

In: a seed and what the draws are for. Out: arrays of draws. Only the raw bits of PCG64 are promised to stay the same
from one numpy to the next; the distributions of its Generator are not. So each draw here is made from the bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


class Dice:
    """A stream of draws. Two purposes with one seed are independent, so adding draws to one moves no other.

    >>> first, second = Dice(7, "titles"), Dice(7, "titles")
    >>> first.below(6, 4).tolist() == second.below(6, 4).tolist()
    True
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, *purpose.encode()]))

    def uniforms(self, count: int) -> Floats:
        """Numbers from 0 (included) to 1 (excluded)."""
        raw = np.asarray(self._bits.random_raw(count), dtype=np.uint64)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, limit: int, count: int) -> Integers:
        """Integers from 0 up to, not including, the limit."""
        return (self.uniforms(count) * limit).astype(np.int64)

    def chances(self, probability: float, count: int) -> Booleans:
        """True with this probability."""
        return self.uniforms(count) < probability

    def weighted(self, weights: Sequence[float] | Floats, count: int) -> Integers:
        """Indexes, each as often as its weight says."""
        steps = np.cumsum(np.asarray(weights, dtype=np.float64))
        return np.searchsorted(steps / steps[-1], self.uniforms(count), side="right").astype(np.int64)

    def ranks(self, size: int, count: int, exponent: float = 1.0) -> Integers:
        """Ranks from 0, rank r as often as 1 / (r + 1) ** exponent (Zipf): few are popular, most are rare."""
        return self.weighted(np.arange(1, size + 1, dtype=np.float64) ** -exponent, count)

    def shuffled(self, size: int) -> Integers:
        """The integers below `size` in a random order."""
        return np.argsort(self.uniforms(size), kind="stable").astype(np.int64)
