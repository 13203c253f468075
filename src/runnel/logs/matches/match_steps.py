"""Encode the ids of matches as steps, the differences between consecutive ids (see `match_files`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.kernel import kernel
from runnel.model.match import LEAP, Steps

Ids = npt.NDArray[np.int64]


def steps_of(offsets: Ids, queries: Ids) -> Steps:
    """Encode rows of ascending ids as steps.

    >>> found = steps_of(np.array([0, 3, 4]), np.array([7, 9, 70_009, 3]))
    >>> found.steps.tolist(), found.leap_offsets.tolist(), found.leaps.tolist(), found.ids().tolist()
    ([7, 2, 65535, 3], [0, 1, 1], [70000], [7, 9, 70009, 3])
    """
    steps = np.empty(len(queries), dtype=np.uint16)
    leap_offsets = np.empty(len(offsets), dtype=np.int64)
    leaps = np.empty(_count_leaps(offsets, queries), dtype=np.int64)
    _write_steps(offsets, queries, steps, leap_offsets, leaps)
    return Steps(offsets, steps, leap_offsets, leaps)


@kernel
def _count_leaps(offsets: Any, queries: Any) -> int:
    count = 0
    for row in range(len(offsets) - 1):
        last = 0
        for index in range(offsets[row], offsets[row + 1]):
            count += queries[index] - last >= LEAP
            last = queries[index]
    return count


@kernel
def _write_steps(offsets: Any, queries: Any, steps: Any, leap_offsets: Any, leaps: Any) -> None:
    leap = 0
    for row in range(len(offsets) - 1):
        leap_offsets[row] = leap
        last = 0
        for index in range(offsets[row], offsets[row + 1]):
            step = queries[index] - last
            last = queries[index]
            if step >= LEAP:
                leaps[leap] = step
                leap += 1
                step = LEAP
            steps[index] = step
    leap_offsets[len(offsets) - 1] = leap
