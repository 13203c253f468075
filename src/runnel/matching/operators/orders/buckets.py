"""The calls of each item, the most worthwhile first: buckets of logarithmic width, one set for an item.

Scores change all the time, so slots are kept in buckets, 16 for a doubling of the score, each a list linked in both
directions. A slot whose score has fallen is noticed when its bucket is reached; one whose score has risen is moved at
once. Items with few slots have no buckets: theirs are looked through.
"""

from __future__ import annotations

import numpy as np

from runnel.kernel import Number, step
from runnel.plan.arrays import Array

FEW = 64
"""An item with at most so many slots has no buckets."""
BUCKETS = 512
"""Enough for scores between the highest that any slot can have and a part in four thousand million of it."""

_FINENESS = 19
"""The bits of a number that make no difference: of the 23 after the point, 4 remain."""
NOTHING = -1


@step
def step_of(score: Number) -> Number:
    """The logarithmic step of a score: the first bits of a number above 0 are in its order."""
    return np.float32(max(score, 0.0)).view(np.int32) >> _FINENESS


@step
def bucket_of(score: Number, top: Number) -> Number:
    """The bucket of a score, where `top` is the step of the highest; the last is for all that is lower."""
    return min(max(top - step_of(score), 0), BUCKETS - 1)


@step
def put(
    slot: Number, bucket: Number, base: Number, heads: Array, after: Array, before: Array, buckets: Array
) -> None:
    """Put a slot into a bucket of its item, whose buckets begin at `base`."""
    first = heads[base + bucket]
    after[slot] = first
    before[slot] = NOTHING
    if first != NOTHING:
        before[first] = slot
    heads[base + bucket] = slot
    buckets[slot] = bucket


@step
def take(slot: Number, base: Number, heads: Array, after: Array, before: Array, buckets: Array) -> None:
    """Take a slot out of its bucket."""
    following, previous = after[slot], before[slot]
    if previous == NOTHING:
        heads[base + buckets[slot]] = following
    else:
        after[previous] = following
    if following != NOTHING:
        before[following] = previous
    buckets[slot] = NOTHING
