"""Kernels: which intervals hold others, the nearest first, with a bound on the search."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel

_SEARCHED = 256
"""How many intervals are looked at for one, at most: a thousand ranges must not cost a million steps."""


def nearest_wider(lows: Array, highs: Array, able: Array, most: int) -> tuple[Array, Array]:
    """Positions of intervals, and of intervals that hold them; `able` says which may hold others.

    >>> lows, highs, able = np.array([1, 2, 3]), np.array([9, 9, 4]), np.array([True, True, True])
    >>> [part.tolist() for part in nearest_wider(lows, highs, able, 1)]
    [[1, 2], [0, 1]]
    """
    order = np.lexsort((np.arange(len(lows)), -highs, lows))
    found = _search(lows[order], highs[order], able[order], most, _SEARCHED)
    return order[found[:, 0]], order[found[:, 1]]


@kernel
def _search(lows: Array, highs: Array, able: Array, most: int, searched: int) -> Array:
    """Among intervals by ascending low, then descending high, only an earlier one can hold a later one."""
    found = np.empty((len(lows) * most, 2), dtype=np.int64)
    count = 0
    for narrow in range(len(lows)):
        kept = 0
        for wide in range(narrow - 1, max(-1, narrow - 1 - searched), -1):
            if kept == most:
                break
            if able[wide] and highs[wide] >= highs[narrow]:
                found[count, 0] = narrow
                found[count, 1] = wide
                count += 1
                kept += 1
    return found[:count]
