"""Matches: which queries an item satisfies; one row per item, never one per subscription."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that raised on an item: it does not match, is put aside with the reason, and the rest goes on."""

    row: int
    query: int
    reason: str
    by_operator: bool = False
    """Whether the reason is an operator's own words, which may name servers and files that only the admin may see."""


@dataclass(frozen=True)
class Matches:
    """The answer of a matcher: for row i of its batch, `queries[offsets[i]:offsets[i + 1]]`, ascending.

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
        """How many (item, query) pairs match."""
        return len(self.queries)

    def row(self, index: int) -> npt.NDArray[np.int64]:
        """The ids of the queries that the item in this row matches."""
        return self.queries[self.offsets[index] : self.offsets[index + 1]]

    @staticmethod
    def of(rows: Iterable[Sequence[int]], failures: Iterable[Failure] = ()) -> Matches:
        """Matches from lists of query ids."""
        sorted_rows = [np.unique(np.asarray(list(row), dtype=np.int64)) for row in rows]
        lengths = np.fromiter((len(row) for row in sorted_rows), dtype=np.int64, count=len(sorted_rows))
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        queries = np.concatenate(sorted_rows) if sorted_rows else np.empty(0, dtype=np.int64)
        return Matches(offsets, queries, tuple(failures))


LEAP = 65535
"""In place of a step that does not fit into two bytes."""


@dataclass(frozen=True)
class Steps:
    """Ascending ids by row, as steps from one to the next, the first from 0: two bytes for nearly every id.

    Row i has the steps from `offsets[i]` to `offsets[i + 1]`. For a step that is LEAP, the next of the row's leaps,
    from `leap_offsets[i]` on, says how long it is.

    >>> one = Steps(np.array([0, 3]), np.array([7, 2, LEAP], dtype=np.uint16), np.array([0, 1]), np.array([70_000]))
    >>> one.ids().tolist()
    [7, 9, 70009]
    """

    offsets: npt.NDArray[np.int64]
    steps: npt.NDArray[np.uint16]
    leap_offsets: npt.NDArray[np.int64]
    leaps: npt.NDArray[np.int64]

    def ids(self) -> npt.NDArray[np.int64]:
        """The ids themselves, row after row."""
        ids = self.steps.astype(np.int64)
        ids[self.steps == LEAP] = self.leaps
        np.cumsum(ids, out=ids)
        # A row begins anew: what the rows before it added up to is taken away again.
        before = np.concatenate([np.zeros(1, dtype=np.int64), ids])[self.offsets[:-1]]
        ids -= np.repeat(before, np.diff(self.offsets))
        return ids


class SteppedMatches(Matches):
    """Matches as steps: an item may match ten thousand queries, and mostly they are only written down."""

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
        """How many (item, query) pairs match."""
        return len(self.steps.steps)
