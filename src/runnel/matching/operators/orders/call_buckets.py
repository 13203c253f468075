"""The calls of each item, the most worthwhile first: buckets of logarithmic width, one set for an item.

Scores change all the time, so slots are kept in buckets, 16 for a doubling of the score. A slot whose score has
fallen is noticed when its bucket is reached. Items with few slots have no buckets: theirs are looked through.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined

FEW = 64
"""An item with at most so many slots has no buckets."""
BUCKETS = 512
"""Enough for scores between the highest that any slot can have and a part in four thousand million of it."""

_FINENESS = 19
"""The bits of a number that make no difference: of the 23 after the point, 4 remain."""


@inlined
def step_of(score: Number) -> Number:
    """The logarithmic step of a score: the first bits of a number above 0 are in its order."""
    return np.float32(max(score, 0.0)).view(np.int32) >> _FINENESS


@inlined
def bucket_of(score: Number, top: Number) -> Number:
    """The bucket of a score, where `top` is the step of the highest; the last is for all that is lower."""
    return min(max(top - step_of(score), 0), BUCKETS - 1)


@inlined
def push(slot: Number, bucket: Number, base: Number, heads: Array, after: Array) -> None:
    """Put a slot into a bucket of its item, whose buckets begin at `base`; none is ever taken but the first."""
    after[slot] = heads[base + bucket]
    heads[base + bucket] = slot
