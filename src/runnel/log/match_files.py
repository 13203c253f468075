"""Match parts as files: what a worker writes. No catalog here, so that workers start quickly.

A part is Arrow with MATCH_SCHEMA, one row per item that matched anything; the commit of its batch makes it exist.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.log.arrow_files import read_arrow, write_arrow
from runnel.log.storage import Storage
from runnel.model.match import Matches
from runnel.model.segment import MatchPart

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

    def of_queries(
        self, wanted: Collection[int] | npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The (sequence, query) pairs of these queries, in order of sequence."""
        ids = wanted if isinstance(wanted, np.ndarray) else np.fromiter(wanted, dtype=np.int64, count=len(wanted))
        chosen = np.flatnonzero(np.isin(self.queries, ids))
        rows = np.searchsorted(self.offsets, chosen, side="right") - 1
        return self.sequences[rows], self.queries[chosen]

    def between(self, after: int, upto: int) -> MatchRows:
        """The rows of the items in (after, upto]."""
        low, high = np.searchsorted(self.sequences, [after + 1, upto + 1])
        base = self.offsets[low]
        return MatchRows(
            self.sequences[low:high],
            self.offsets[low : high + 1] - base,
            self.queries[base : self.offsets[high]],
        )


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


def read_part(storage: Storage, path: str) -> MatchRows:
    """The matches of a part, mapped into memory where it was written in one piece."""
    batches = read_arrow(storage, path).combine_chunks().to_batches()
    if not batches:
        empty = np.empty(0, dtype=np.int64)
        return MatchRows(empty, np.zeros(1, dtype=np.int64), empty)
    queries = batches[0].column("queries")
    return MatchRows(
        batches[0].column("sequence").to_numpy(),
        np.asarray(queries.offsets.to_numpy(), dtype=np.int64),
        np.asarray(queries.values.to_numpy(), dtype=np.int64),
    )


def joined(parts: Sequence[MatchRows]) -> MatchRows:
    """Several runs of matches as one."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return MatchRows(
        np.concatenate([part.sequences for part in parts]),
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        np.concatenate([part.queries for part in parts]),
    )


def write_rows(storage: Storage, path: str, rows: MatchRows, sequences: tuple[int, int]) -> MatchPart:
    """Write matches as one part, in one piece."""
    queries = pa.ListArray.from_arrays(
        pa.array(rows.offsets.astype(np.int32)), pa.array(rows.queries), type=MATCH_SCHEMA.field(1).type
    )
    records = pa.RecordBatch.from_arrays([pa.array(rows.sequences), queries], schema=MATCH_SCHEMA)
    size = write_arrow(storage, path, [records], MATCH_SCHEMA)
    return MatchPart(path, sequences[0], sequences[1], size)
