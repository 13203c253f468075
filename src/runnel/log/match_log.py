"""The match log: which queries each item satisfied, read by range of sequences and by query."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runnel.catalog.connection import Catalog
from runnel.catalog.matches import match_parts, matched_upto
from runnel.log.arrow_files import read_arrow
from runnel.log.storage import Storage
from runnel.model.segment import MatchPart


@dataclass(frozen=True)
class MatchRows:
    """Matches as stored: row i says that the item `sequences[i]` satisfies its slice of `queries`."""

    sequences: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int64]

    def of_queries(self, wanted: Collection[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The (sequence, query) pairs of these queries, in order of sequence."""
        pairs = np.repeat(self.sequences, np.diff(self.offsets))
        chosen = np.isin(self.queries, np.fromiter(wanted, dtype=np.int64, count=len(wanted)))
        return pairs[chosen], self.queries[chosen]


class MatchLog:
    """The committed matches of a root."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage

    def matched_upto(self) -> int:
        """The last sequence whose matches are committed."""
        with self._catalog.read() as connection:
            return matched_upto(connection)

    def read(self, after: int, upto: int) -> Iterator[MatchRows]:
        """The matches of the items in (after, upto], part by part, in order."""
        with self._catalog.read() as connection:
            parts = match_parts(connection, after, upto)
        for part in parts:
            rows = self._part(part)
            low, high = np.searchsorted(rows.sequences, [after + 1, upto + 1])
            if low < high:
                base = rows.offsets[low]
                yield MatchRows(
                    rows.sequences[low:high],
                    rows.offsets[low : high + 1] - base,
                    rows.queries[base : rows.offsets[high]],
                )

    def _part(self, part: MatchPart) -> MatchRows:
        table = read_arrow(self._storage, part.path).combine_chunks()
        batches = table.to_batches()
        if not batches:
            empty = np.empty(0, dtype=np.int64)
            return MatchRows(empty, np.zeros(1, dtype=np.int64), empty)
        queries = batches[0].column("queries")
        return MatchRows(
            batches[0].column("sequence").to_numpy(),
            np.asarray(queries.offsets.to_numpy(), dtype=np.int64),
            np.asarray(queries.values.to_numpy(), dtype=np.int64),
        )
