"""Which items are in which windows: for each window its items, and for each item its windows.

In: pairs of an item's row and a window. Out: the rows of a window, and the windows of a row. If all items are in all
windows, as in a file with one window, nothing is stored for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.arrays import offsets_of, read_only

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]

_ARRAYS = ("windows", "member_starts", "member_rows", "row_starts", "row_windows")


@dataclass(frozen=True)
class WindowMembers:
    """The rows of window i are `member_rows[member_starts[i]:member_starts[i + 1]]`.

    The windows of a row are listed in the same way in `row_windows`, as positions in `windows`, which are ascending.
    If all rows are in all windows, the four arrays are empty.
    """

    count: int
    windows: Array
    member_starts: Array
    member_rows: Array
    row_starts: Array
    row_windows: Array

    @property
    def is_complete(self) -> bool:
        """Whether all rows are in all windows."""
        return len(self.member_starts) == 0

    @property
    def sizes(self) -> Numbers:
        """The number of items in each window."""
        if self.is_complete:
            return np.full(len(self.windows), self.count, dtype=np.int64)
        starts = self.member_starts.astype(np.int64)
        return starts[1:] - starts[:-1]

    def rows_of(self, window: int) -> Numbers:
        """Return the rows of the items in a window, ascending."""
        position = int(np.searchsorted(self.windows, window))
        if position == len(self.windows) or self.windows[position] != window:
            return np.empty(0, dtype=np.int64)
        if self.is_complete:
            return np.arange(self.count)
        return self.member_rows[self.member_starts[position] : self.member_starts[position + 1]].astype(np.int64)

    def bounds(self) -> tuple[Numbers, Numbers]:
        """Return the first and the last row of each window. Every window has a row."""
        if self.is_complete:
            return np.zeros(len(self.windows), dtype=np.int64), np.full(len(self.windows), self.count - 1)
        starts = self.member_starts.astype(np.int64)
        return self.member_rows[starts[:-1]].astype(np.int64), self.member_rows[starts[1:] - 1].astype(np.int64)

    def pairs(self) -> tuple[Numbers, Numbers]:
        """Return all pairs of a row and a window."""
        if self.is_complete:
            return np.repeat(np.arange(self.count), len(self.windows)), np.tile(self.windows, self.count)
        return self.member_rows.astype(np.int64), np.repeat(self.windows, self.sizes)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to store."""
        return {name: getattr(self, name) for name in _ARRAYS}

    @staticmethod
    def stored(count: int, arrays: Mapping[str, Array]) -> WindowMembers:
        """Return the members of arrays that `arrays` returned."""
        return WindowMembers(count, *(read_only(arrays[name]) for name in _ARRAYS))

    @staticmethod
    def of(count: int, rows: Numbers, keys: Numbers) -> WindowMembers:
        """Return members of pairs of a row and the key of a window."""
        windows, positions = np.unique(keys, return_inverse=True)
        codes = np.unique(positions.reshape(-1) * count + rows)
        number = np.uint16 if len(windows) < 1 << 16 else np.uint32
        if len(codes) == count * len(windows):
            none: list[Array] = [np.empty(0, dtype) for dtype in (np.uint32, np.int32, np.uint32, number)]
            return WindowMembers(count, windows, *map(read_only, none))
        positions, rows = np.divmod(codes, count)
        by_row = np.argsort(rows, kind="stable")
        return WindowMembers(
            count,
            windows,
            read_only(offsets_of(np.bincount(positions, minlength=len(windows))).astype(np.uint32)),
            read_only(rows.astype(np.int32)),
            read_only(offsets_of(np.bincount(rows, minlength=count)).astype(np.uint32)),
            read_only(positions[by_row].astype(number)),
        )


def merge_members(several: Sequence[WindowMembers], moved: Sequence[Numbers], count: int) -> WindowMembers:
    """Merge members. `moved` has for each of them the new row of every row, or -1 if it is dropped."""
    pairs = [members.pairs() for members in several]
    rows = np.concatenate([new[own] for new, (own, _) in zip(moved, pairs, strict=True)])
    keys = np.concatenate([keys for _, keys in pairs])
    return WindowMembers.of(count, rows[rows >= 0], keys[rows >= 0])
