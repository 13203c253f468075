"""Split a sequence of elements with two amounts each into parts with nearly equal sums of both amounts.

In: the amounts, in the order of the sequence. Out: the part of each element. This is the necklace splitting problem
with two kinds of beads. If the sequence is closed to a ring, there is an arc with a given fraction of both amounts:
arcs with that fraction of the first amount have it of the second on average, and an arc that moves along the ring
changes only a little at each step. The ring is cut in two this way, and the halves again, so each part consists of
few runs of the sequence.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array

_TOLERANCE = 0.01
"""Parts may differ from their fair share by this fraction of it. Of several cuts, the first is taken."""


def split_evenly(first: Array, second: Array, count: int) -> Array:
    """Return the part of each element, from 0 to `count` - 1. Parts are of similar size by either amount.

    >>> split_evenly(np.array([1.0, 1, 1, 1, 4, 0]), np.array([1.0, 1, 1, 1, 2, 2]), 2).tolist()
    [0, 0, 0, 0, 1, 1]
    """
    parts = np.zeros(len(first), dtype=np.int64)
    pending = [(np.arange(len(first)), 0, count)]
    while pending:
        ring, number, part_count = pending.pop()
        if part_count == 1 or not len(ring):
            parts[ring] = number
            continue
        half = part_count // 2
        start, stop = _find_arc(first[ring], second[ring], half / part_count, _TOLERANCE / part_count)
        inside = np.zeros(len(ring), dtype=bool)
        inside[start:stop] = True
        inside[: max(0, stop - len(ring))] = True
        pending.append((ring[inside], number, half))
        pending.append((ring[~inside], number + half, part_count - half))
    return parts


def _find_arc(first: Array, second: Array, wanted: float, tolerance: float) -> tuple[int, int]:
    """Return the start and the end of an arc with a wanted fraction of both amounts. It may wrap around."""
    sums = [_ring_sums(amounts) for amounts in (first, second)]
    starts = np.arange(len(first))
    ends, errors = starts, np.full(len(first), np.inf)
    # Each arc has the wanted fraction of one amount. With one element less, it may be nearer to it than with one
    # more.
    for lead in sums:
        stops = np.searchsorted(lead, lead[: len(first)] + wanted)
        for shift in (0, -1):
            tried = np.clip(stops + shift, starts, starts + len(first))
            error = np.maximum(*(np.abs(total[tried] - total[: len(first)] - wanted) for total in sums))
            ends, errors = np.where(error < errors, tried, ends), np.minimum(error, errors)
    start = int(np.argmax(errors <= max(tolerance, float(errors.min()))))
    return start, int(ends[start])


def _ring_sums(amounts: Array) -> Array:
    """Return cumulative sums of amounts, as fractions of the total, over two rounds of the ring."""
    total = float(amounts.sum())
    fractions = amounts / total if total > 0 else np.full(len(amounts), 1.0 / len(amounts))
    return np.concatenate([[0.0], np.cumsum(np.concatenate([fractions, fractions]))])
