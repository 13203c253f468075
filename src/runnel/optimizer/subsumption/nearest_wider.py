"""Kernels that find the intervals that contain other intervals, nearest first, with limited effort."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel

_MAX_COMPARED = 256
"""How many intervals each interval is compared with, so that the effort is not quadratic."""


def nearest_wider(lows: Array, highs: Array, able: Array, most: int) -> tuple[Array, Array]:
    """Return indexes of intervals, and of intervals that contain them, at most `most` each.

    `able` tells which intervals may contain others.


    >>> lows, highs, able = np.array([1, 2, 3]), np.array([9, 9, 4]), np.array([True, True, True])
    >>> [part.tolist() for part in nearest_wider(lows, highs, able, 1)]
    [[1, 2], [0, 1]]
    """
    order = np.lexsort((np.arange(len(lows)), -highs, lows))
    pairs = _search(lows[order], highs[order], able[order], most, _MAX_COMPARED)
    return order[pairs[:, 0]], order[pairs[:, 1]]


@kernel
def _search(lows: Array, highs: Array, able: Array, most: int, max_compared: int) -> Array:
    """Search pairs among intervals sorted by ascending low, then descending high, so that wider ones come earlier."""
    pairs = np.empty((len(lows) * most, 2), dtype=np.int64)
    count = 0
    for narrow in range(len(lows)):
        kept = 0
        for wide in range(narrow - 1, max(-1, narrow - 1 - max_compared), -1):
            if kept == most:
                break
            if able[wide] and highs[wide] >= highs[narrow]:
                pairs[count, 0] = narrow
                pairs[count, 1] = wide
                count += 1
                kept += 1
    return pairs[:count]
