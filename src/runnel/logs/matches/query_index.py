"""The index by query of a file of matches: the sequences of each query that is read by query.

A file is Arrow with BY_QUERY_SCHEMA, mapped into memory, with one row per covered query in ascending order, even for
queries without a match. For other queries, the matches are scanned.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.logs.matches.match_files import MatchRows
from runnel.storage.arrow_files import read_arrow, write_arrow
from runnel.storage.file_storage import Storage

BY_QUERY_SCHEMA = pa.schema(
    [
        pa.field("query", pa.int64(), nullable=False),
        pa.field("sequences", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ],
    metadata={"runnel.format": "matches-by-query/1"},
)

Ids = npt.NDArray[np.int64]


def write_index(storage: Storage, path: str, rows: MatchRows, queries: Collection[int]) -> str:
    """Write the index of matches for these queries. Return the file's name."""
    covered = np.unique(np.fromiter(queries, dtype=np.int64, count=len(queries)))
    sequences, of = rows.of_queries(covered)
    order = np.argsort(of, kind="stable")
    offsets = np.searchsorted(of[order], covered, side="left")
    ends = np.append(offsets, len(order)).astype(np.int32)
    values = pa.ListArray.from_arrays(
        pa.array(ends), pa.array(sequences[order]), type=BY_QUERY_SCHEMA.field("sequences").type
    )
    records = pa.RecordBatch.from_arrays([pa.array(covered), values], schema=BY_QUERY_SCHEMA)
    return write_arrow(storage, path, [records], BY_QUERY_SCHEMA).path


class QueryIndex:
    """An open index."""

    def __init__(self, storage: Storage, path: str) -> None:
        (batch,) = read_arrow(storage, path).to_batches() or [pa.RecordBatch.from_pylist([], schema=BY_QUERY_SCHEMA)]
        lists = batch.column("sequences")
        self._queries: Ids = batch.column("query").to_numpy()
        self._offsets: npt.NDArray[np.int32] = lists.offsets.to_numpy()
        self._sequences: Ids = lists.values.to_numpy()

    def covers(self, queries: Ids) -> npt.NDArray[np.bool_]:
        """Return which of these ascending queries the index covers."""
        indexes = np.searchsorted(self._queries, queries)
        inside = indexes < len(self._queries)
        inside[inside] = self._queries[indexes[inside]] == queries[inside]
        return inside

    def of_queries(self, queries: Ids, after: int, upto: int) -> dict[int, Ids]:
        """Return the sequences in (after, upto] of covered queries, for queries that have any."""
        indexes = np.searchsorted(self._queries, queries)
        by_query: dict[int, Ids] = {}
        filled = self._offsets[indexes] < self._offsets[indexes + 1]
        for query, index in zip(queries[filled].tolist(), indexes[filled].tolist(), strict=True):
            sequences = self._sequences[self._offsets[index] : self._offsets[index + 1]]
            low, high = np.searchsorted(sequences, [after + 1, upto + 1])
            if low < high:
                by_query[query] = sequences[low:high]
        return by_query
