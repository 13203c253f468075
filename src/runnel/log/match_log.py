"""The match log: which queries each item satisfied. One row per item that matched anything.

A part file is Arrow with MATCH_SCHEMA; a worker writes it, and the commit of its batch makes it exist.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.catalog.connection import Catalog
from runnel.catalog.matches import MatchPart, match_parts, matched_upto
from runnel.log.arrow_files import read_arrow, write_arrow
from runnel.log.storage import Storage
from runnel.model.match import Matches

MATCH_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("queries", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ],
    metadata={"runnel.format": "matches/1"},
)


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


def match_records(sequences: npt.NDArray[np.int64], matches: Matches) -> Any:
    """A record batch of MATCH_SCHEMA: the items that matched something."""
    lengths = np.diff(matches.offsets)
    kept = lengths > 0
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths[kept])]).astype(np.int32)
    queries = pa.ListArray.from_arrays(pa.array(offsets), pa.array(matches.queries), type=MATCH_SCHEMA.field(1).type)
    return pa.RecordBatch.from_arrays([pa.array(sequences[kept]), queries], schema=MATCH_SCHEMA)


def write_part(storage: Storage, lineage: int, batches: Sequence[Any], sequences: tuple[int, int]) -> MatchPart:
    """Write one part under a name that no other attempt uses."""
    path = f"matches/{lineage}/{sequences[0]:020d}-{uuid.uuid4().hex}.arrow"
    size = write_arrow(storage, path, list(batches), MATCH_SCHEMA)
    return MatchPart(path, sequences[0], sequences[1], size)


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
