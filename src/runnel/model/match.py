"""Matches: which queries an item satisfies; one row per item, never one per subscription."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Failure:
    """A query that raised on an item: it does not match, is put aside with the reason, and the rest goes on."""

    row: int
    query: int
    reason: str


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
