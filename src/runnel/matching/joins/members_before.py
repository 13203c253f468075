"""The items of a window as of an item, from the stored parts of all windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np

from runnel.matching.joins.window_items import Numbers, WindowItems

_MICROSECOND = timedelta(microseconds=1)


def members_before(
    parts: Sequence[WindowItems], window: int, sequence: int, accepted: int, extent: timedelta | int
) -> Numbers:
    """Return the sequences of the items in a window of an item, in ascending order.

    `window` is the key of the window, and `sequence` and `accepted` belong to the item.
    """
    rows = [part.members_of(window) for part in parts]
    sequences = np.concatenate([part.sequences[own] for part, own in zip(parts, rows, strict=True)] or [_NONE])
    times = np.concatenate([part.accepted[own] for part, own in zip(parts, rows, strict=True)] or [_NONE])
    members, first = np.unique(sequences, return_index=True)
    times = times[first][members < sequence]
    members = members[members < sequence]
    if isinstance(extent, int):
        return members[-extent:]
    return np.asarray(members[accepted - times < extent // _MICROSECOND])


_NONE: Numbers = np.empty(0, dtype=np.int64)
