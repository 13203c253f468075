"""Bucket queues of the calls of each item, by decreasing score. Buckets have logarithmic width.

Scores change all the time, so slots are only sorted into buckets, 16 per doubling of the score. A slot whose score
has decreased is moved when its bucket is reached. Items with few slots have no buckets; their slots are scanned.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined

FEW = 64
"""Items with at most this number of slots have no buckets."""
BUCKETS = 512
"""Buckets per item. They distinguish scores down to the highest score divided by 2**32."""

_DROPPED_BITS = 19
"""The number of low bits of a float that are ignored: 4 of the 23 bits of the mantissa remain."""


@inlined
def step_of(score: Number) -> Number:
    """Return the logarithmic step of a score. The high bits of positive floats have the order of the floats."""
    return np.float32(max(score, 0.0)).view(np.int32) >> _DROPPED_BITS


@inlined
def bucket_of(score: Number, top: Number) -> Number:
    """Return the bucket of a score. `top` is the step of the highest score; the last bucket has all lower scores."""
    return min(max(top - step_of(score), 0), BUCKETS - 1)


@inlined
def push(slot: Number, bucket: Number, base: Number, heads: Array, after: Array) -> None:
    """Insert a slot at the front of a bucket of its item, whose buckets begin at `base`."""
    after[slot] = heads[base + bucket]
    heads[base + bucket] = slot
