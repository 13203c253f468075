"""Matches: the queries that each item satisfies, with one row per item and never one per subscription."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that raised an exception on an item. It does not match and is quarantined with the reason; matching
    continues.
    """

    row: int
    query: int
    reason: str
    by_operator: bool = False
    """Whether the reason comes from an operator. It may contain names of servers and files that only the admin may
    see.
    """


@dataclass(frozen=True)
class Matches:
    """The result of a matcher: for row i of its batch, `queries[offsets[i]:offsets[i + 1]]`, ascending.

    >>> matches = Matches.of([[3, 1], [], [2]])
    >>> matches.row(0).tolist(), matches.row(1).tolist(), matches.total
    ([1, 3], [], 3)
    """

    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int64]
    failures: tuple[Failure, ...] = ()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def total(self) -> int:
        """The number of matching (item, query) pairs."""
        return len(self.queries)

    def row(self, index: int) -> npt.NDArray[np.int64]:
        """Return the ids of the queries that the item in this row matches."""
        return self.queries[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of(rows: Iterable[Sequence[int]], failures: Iterable[Failure] = ()) -> Matches:
        """Create matches from lists of query ids."""
        sorted_rows = [np.unique(np.asarray(list(row), dtype=np.int64)) for row in rows]
        lengths = np.fromiter((len(row) for row in sorted_rows), dtype=np.int64, count=len(sorted_rows))
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        queries = np.concatenate(sorted_rows) if sorted_rows else np.empty(0, dtype=np.int64)
        return Matches(offsets, queries, tuple(failures))


LEAP = 65535
"""Marks a step that does not fit into two bytes."""


@dataclass(frozen=True)
class Steps:
    """Ascending ids by row, as differences between consecutive ids, the first from 0: two bytes for nearly every id.

    Row i has the steps from `offsets[i]` to `offsets[i + 1]`. If a step is LEAP, the row's next leap, from
    `leap_offsets[i]` on, contains its value.

    >>> one = Steps(np.array([0, 3]), np.array([7, 2, LEAP], dtype=np.uint16), np.array([0, 1]), np.array([70_000]))
    >>> one.ids().tolist()
    [7, 9, 70009]
    """

    offsets: npt.NDArray[np.int64]
    steps: npt.NDArray[np.uint16]
    leap_offsets: npt.NDArray[np.int64]
    leaps: npt.NDArray[np.int64]

    def ids(self) -> npt.NDArray[np.int64]:
        """Return the ids, row after row."""
        ids = self.steps.astype(np.int64)
        ids[self.steps == LEAP] = self.leaps
        np.cumsum(ids, out=ids)
        # Each row starts at 0, so subtract the running sum of the previous rows.
        before = np.concatenate([np.zeros(1, dtype=np.int64), ids])[self.offsets[:-1]]
        ids -= np.repeat(before, np.diff(self.offsets))
        return ids


class SteppedMatches(Matches):
    """Matches as steps. An item may match ten thousand queries, and most matches are only written to a file."""

    def __init__(self, steps: Steps, failures: tuple[Failure, ...] = ()) -> None:
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "offsets", steps.offsets)
        object.__setattr__(self, "failures", failures)

    steps: Steps

    @cached_property
    def queries(self) -> npt.NDArray[np.int64]:
        """The ids of the queries, row after row."""
        return self.steps.ids()

    @property
    def total(self) -> int:
        """The number of matching (item, query) pairs."""
        return len(self.steps.steps)
