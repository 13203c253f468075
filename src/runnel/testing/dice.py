"""Random numbers that are identical for the same seed on every machine and with every version of numpy.

In: a seed and a purpose. Out: arrays of random numbers. numpy guarantees stable results only for the raw bits of
PCG64, not for the distributions of its Generator, so all numbers are computed from the raw bits here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


class Dice:
    """A stream of random numbers. Streams with different purposes are independent, even with the same seed.

    >>> first, second = Dice(7, "titles"), Dice(7, "titles")
    >>> first.below(6, 4).tolist() == second.below(6, 4).tolist()
    True
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence([seed, *purpose.encode()]))

    def uniforms(self, count: int) -> Floats:
        """Draw numbers from 0 (included) to 1 (excluded)."""
        raw = np.asarray(self._bits.random_raw(count), dtype=np.uint64)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, limit: int, count: int) -> Integers:
        """Draw integers from 0 (included) to the limit (excluded)."""
        return (self.uniforms(count) * limit).astype(np.int64)

    def chances(self, probability: float, count: int) -> Booleans:
        """Draw booleans that are true with this probability."""
        return self.uniforms(count) < probability

    def weighted(self, weights: Sequence[float] | Floats, count: int) -> Integers:
        """Draw indexes with probabilities proportional to their weights."""
        steps = np.cumsum(np.asarray(weights, dtype=np.float64))
        return np.searchsorted(steps / steps[-1], self.uniforms(count), side="right").astype(np.int64)

    def ranks(self, size: int, count: int, exponent: float = 1.0) -> Integers:
        """Draw ranks from 0 with Zipf's distribution: rank r has a weight of 1 / (r + 1) ** exponent."""
        return self.weighted(np.arange(1, size + 1, dtype=np.float64) ** -exponent, count)

    def shuffled(self, size: int) -> Integers:
        """Return the integers below `size` in a random order."""
        return np.argsort(self.uniforms(size), kind="stable").astype(np.int64)
