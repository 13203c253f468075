"""Match parts as files: what a worker writes. No catalog here, so that workers start quickly.

A part is Arrow with MATCH_SCHEMA, one row per item that matched anything; the commit of its batch makes it exist. One
item may match ten thousand queries, so their ids, which ascend, are kept as steps from one to the next, in two bytes
each. A step too long for that is LEAP, and the next of the row's leaps says how long it is.
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
from runnel.model.match import Matches, SteppedMatches, Steps
from runnel.model.segment import MatchPart

MATCH_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("steps", pa.list_(pa.field("item", pa.uint16(), nullable=False)), nullable=False),
        pa.field("leaps", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ],
    metadata={"runnel.format": "matches/2"},
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
    steps = matches.steps if isinstance(matches, SteppedMatches) else _steps_of(matches.offsets, matches.queries)
    kept = np.flatnonzero(np.diff(steps.offsets))
    ends = np.append(kept, len(sequences))
    return _records(sequences[kept], Steps(steps.offsets[ends], steps.steps, steps.leap_offsets[ends], steps.leaps))


def _steps_of(offsets: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]) -> Steps:
    # Imported here: who only reads matches needs no compiler.
    from runnel.log.match_steps import steps_of

    return steps_of(offsets, queries)


def _records(sequences: npt.NDArray[np.int64], steps: Steps) -> Any:
    columns = [
        pa.array(sequences),
        _lists(steps.offsets, steps.steps, MATCH_SCHEMA.field("steps")),
        _lists(steps.leap_offsets, steps.leaps, MATCH_SCHEMA.field("leaps")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MATCH_SCHEMA)


def _lists(offsets: npt.NDArray[np.int64], values: npt.NDArray[Any], field: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), type=field.type)


def write_part(storage: Storage, lineage: int, batches: Sequence[Any], sequences: tuple[int, int]) -> MatchPart:
    """Write one part under a name that no other attempt uses."""
    path = f"matches/{lineage}/{sequences[0]:020d}-{uuid.uuid4().hex}.arrow"
    size = write_arrow(storage, path, list(batches), MATCH_SCHEMA)
    return MatchPart(path, sequences[0], sequences[1], size)


def read_part(storage: Storage, path: str) -> MatchRows:
    """The matches of a part."""
    batches = read_arrow(storage, path).combine_chunks().to_batches()
    if not batches:
        empty = np.empty(0, dtype=np.int64)
        return MatchRows(empty, np.zeros(1, dtype=np.int64), empty)
    return _rows(batches[0])


def _rows(batch: Any) -> MatchRows:
    sequences = batch.column("sequence").to_numpy()
    if "queries" in batch.schema.names:  # matches/1: the ids as they are
        offsets, queries = _listed(batch.column("queries"))
        return MatchRows(sequences, offsets, queries)
    steps = Steps(*_listed(batch.column("steps")), *_listed(batch.column("leaps")))
    return MatchRows(sequences, steps.offsets, steps.ids())


def _listed(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    offsets = np.asarray(column.offsets.to_numpy(), dtype=np.int64)
    return offsets - offsets[0], column.values.to_numpy()[offsets[0] : offsets[-1]]


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
    size = write_arrow(storage, path, [_records(rows.sequences, _steps_of(rows.offsets, rows.queries))], MATCH_SCHEMA)
    return MatchPart(path, sequences[0], sequences[1], size)
