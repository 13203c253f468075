"""Dividing a line of things that have two amounts each into parts that are alike in both.

In: the amounts, in the order of the line. Out: the part of each. A line that is closed to a ring has, of any length,
an arc with as much of the second amount as of the first: arcs of one length have it on average, and an arc that is
moved along the ring gains and loses little at a time. So it can be cut in two, and these again, and every part
consists of few runs of the line. (This is how thieves share a necklace with two kinds of beads.)
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array

_NEAR = 0.01
"""Parts may differ by so much of their fair share; of several ways to cut, the one nearest to the start is taken."""


def split_evenly(first: Array, second: Array, count: int) -> Array:
    """The part, from 0 to `count` - 1, of each thing on a line; no part is much larger than others by either amount.

    >>> split_evenly(np.array([1.0, 1, 1, 1, 4, 0]), np.array([1.0, 1, 1, 1, 2, 2]), 2).tolist()
    [0, 0, 0, 0, 1, 1]
    """
    parts = np.zeros(len(first), dtype=np.int64)
    left = [(np.arange(len(first)), 0, count)]
    while left:
        ring, number, several = left.pop()
        if several == 1 or not len(ring):
            parts[ring] = number
            continue
        half = several // 2
        start, stop = _arc(first[ring], second[ring], half / several, _NEAR / several)
        inside = np.zeros(len(ring), dtype=bool)
        inside[start:stop] = True
        inside[: max(0, stop - len(ring))] = True
        left.append((ring[inside], number, half))
        left.append((ring[~inside], number + half, several - half))
    return parts


def _arc(first: Array, second: Array, wanted: float, near: float) -> tuple[int, int]:
    """Where an arc starts and stops (beyond the end: from the start again) that has a wanted part of both amounts."""
    sums = [_around(amounts) for amounts in (first, second)]
    starts = np.arange(len(first))
    ends, errors = starts, np.full(len(first), np.inf)
    # An arc has what is wanted of the one amount, and some of the other; a thing less may be nearer than one more.
    for lead in sums:
        stops = np.searchsorted(lead, lead[: len(first)] + wanted)
        for shift in (0, -1):
            tried = np.clip(stops + shift, starts, starts + len(first))
            off = np.maximum(*(np.abs(one[tried] - one[: len(first)] - wanted) for one in sums))
            ends, errors = np.where(off < errors, tried, ends), np.minimum(off, errors)
    place = int(np.argmax(errors <= max(near, float(errors.min()))))
    return place, int(ends[place])


def _around(amounts: Array) -> Array:
    """Sums of amounts, in parts of the whole, along a ring that is gone around twice."""
    total = float(amounts.sum())
    parts = amounts / total if total > 0 else np.full(len(amounts), 1.0 / len(amounts))
    return np.concatenate([[0.0], np.cumsum(np.concatenate([parts, parts]))])
