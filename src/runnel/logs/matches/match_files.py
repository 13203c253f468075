"""Match parts as files: what a worker writes. No catalog here, so that workers start quickly.

A part is Arrow with MATCH_SCHEMA, one row per item that matched anything; the commit of its batch makes it exist. One
item may match ten thousand queries, so their ids, which ascend, are kept as steps from one to the next, in two bytes
each. A step too long for that is LEAP, and the next of the row's leaps says how long it is.

A part in which some match has bindings is of BOUND_SCHEMA: a row may have, as JSON, the bindings of its queries. An
item that must pass a gate first has its bindings before it has its match: a row without queries did not match.

Where the queries are in partitions, a file has the rows of one partition after those of another, so that an item may
have several, and several files, *layers*, may have rows of the same items. Whoever reads sees one row an item.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.model.bindings import Bindings, MatchBindings, decode_bindings, encode_bindings
from runnel.model.match import Matches, SteppedMatches, Steps
from runnel.model.segment import MatchPart
from runnel.storage.arrow_files import read_arrow, write_arrow
from runnel.storage.file_storage import Storage

MATCH_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("steps", pa.list_(pa.field("item", pa.uint16(), nullable=False)), nullable=False),
        pa.field("leaps", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ],
    metadata={"runnel.format": "matches/1"},
)

_BINDINGS = pa.field("bindings", pa.large_string())
BOUND_SCHEMA = MATCH_SCHEMA.append(_BINDINGS).with_metadata({"runnel.format": "bound matches/1"})

_BLOCK = 500_000
"""Matches that are united at once: few enough to find room in memory that was used before."""


@dataclass(frozen=True)
class MatchRows:
    """Matches as stored: row i says that the item `sequences[i]` satisfies its slice of `queries`.

    `bindings` are an Arrow array of the rows' bindings, as JSON or null; None where no row has any.
    """

    sequences: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int64]
    bindings: Any = None

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
            None if self.bindings is None else self.bindings[low:high],
        )

    def matched(self) -> MatchRows:
        """The rows of the items that matched something: not of those that have bindings and came to no match."""
        kept = np.flatnonzero(np.diff(self.offsets))
        if len(kept) == len(self.sequences):
            return self
        return MatchRows(
            self.sequences[kept],
            np.append(self.offsets[kept], self.offsets[-1]),
            self.queries,
            None if self.bindings is None else self.bindings.take(pa.array(kept)),
        )

    def bindings_of(self, wanted: Mapping[int, Collection[int]]) -> dict[tuple[int, int], Bindings]:
        """The bindings of wanted queries, by sequence, where these matched and have any: by query and sequence."""
        found: dict[tuple[int, int], Bindings] = {}
        if self.bindings is None:
            return found
        sequences = np.fromiter(wanted, dtype=np.int64, count=len(wanted))
        rows = np.flatnonzero(np.isin(self.sequences, sequences) & self.bindings.is_valid().to_numpy(False))
        for row in rows.tolist():
            sequence = int(self.sequences[row])
            matched = set(self.queries[self.offsets[row] : self.offsets[row + 1]].tolist())
            its = decode_bindings(self.bindings[row].as_py(), matched.intersection(wanted[sequence]))
            found |= {(query, sequence): one for query, one in its.items()}
        return found


@dataclass(frozen=True)
class SteppedRows:
    """Matches as a file has them, not decoded: row i has the steps of the queries that `sequences[i]` satisfies.

    An item may have several rows.
    """

    sequences: npt.NDArray[np.int64]
    steps: Steps
    has_bindings: bool = False


def match_records(sequences: npt.NDArray[np.int64], matches: Matches, bindings: MatchBindings | None = None) -> Any:
    """A record batch of the items that matched something: of MATCH_SCHEMA, or, if any has bindings, BOUND_SCHEMA.

    Items with bindings are there too, whatever they matched: a gate may be before their matches.
    """
    steps = matches.steps if isinstance(matches, SteppedMatches) else _steps_of(matches.offsets, matches.queries)
    texts = [encode_bindings(bindings.get(one, {})) for one in sequences.tolist()] if bindings else []
    kept = np.flatnonzero(np.diff(steps.offsets))
    if any(texts):
        kept = np.union1d(kept, [row for row, text in enumerate(texts) if text])
    ends = np.append(kept, len(sequences))
    stored = Steps(steps.offsets[ends], steps.steps, steps.leap_offsets[ends], steps.leaps)
    bound = pa.array([texts[row] for row in kept.tolist()], _BINDINGS.type) if any(texts) else None
    return _records(sequences[kept], stored, bound)


def _steps_of(offsets: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]) -> Steps:
    # Imported here: who only reads matches needs no compiler.
    from runnel.logs.matches.match_steps import steps_of

    return steps_of(offsets, queries)


def _records(sequences: npt.NDArray[np.int64], steps: Steps, bindings: Any = None) -> Any:
    columns = [
        pa.array(sequences),
        _lists(steps.offsets, steps.steps, MATCH_SCHEMA.field("steps")),
        _lists(steps.leap_offsets, steps.leaps, MATCH_SCHEMA.field("leaps")),
    ]
    if bindings is None:
        return pa.RecordBatch.from_arrays(columns, schema=MATCH_SCHEMA)
    return pa.RecordBatch.from_arrays([*columns, bindings], schema=BOUND_SCHEMA)


def _lists(offsets: npt.NDArray[np.int64], values: npt.NDArray[Any], field: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), type=field.type)


def write_part(storage: Storage, lineage: int, batches: Sequence[Any], sequences: tuple[int, int]) -> MatchPart:
    """Write one part under a name that no other attempt uses."""
    path = f"matches/{lineage}/{sequences[0]:020d}-{uuid.uuid4().hex}.arrow"
    if any(_BINDINGS.name in batch.schema.names for batch in batches):
        file = write_arrow(storage, path, [_with_bindings(batch) for batch in batches], BOUND_SCHEMA)
    else:
        file = write_arrow(storage, path, list(batches), MATCH_SCHEMA)
    return MatchPart(file.path, sequences[0], sequences[1], file.size)


def _with_bindings(batch: Any) -> Any:
    """A batch in BOUND_SCHEMA, whether it has bindings or not."""
    if _BINDINGS.name in batch.schema.names:
        return batch
    columns = [*batch.columns, pa.nulls(batch.num_rows, _BINDINGS.type)]
    return pa.RecordBatch.from_arrays(columns, schema=BOUND_SCHEMA)


def has_bindings(storage: Storage, path: str) -> bool:
    """Whether a part has bindings; its matches are not read for that."""
    return _BINDINGS.name in read_arrow(storage, path).schema.names


def repeats_items(storage: Storage, path: str) -> bool:
    """Whether a part has several rows for an item, or rows out of order; its matches are not read for that."""
    return not _ascend(read_arrow(storage, path).column("sequence").to_numpy())


def read_part(storage: Storage, path: str) -> MatchRows:
    """The matches of a part, one row an item, in order."""
    batches = read_arrow(storage, path).combine_chunks().to_batches()
    if not batches:
        empty = np.empty(0, dtype=np.int64)
        return MatchRows(empty, np.zeros(1, dtype=np.int64), empty)
    return united(_rows(batches[0]))


def read_steps(storage: Storage, path: str) -> list[SteppedRows]:
    """The matches of a part as they are stored, mapped into memory; nothing is decoded."""
    return [_stepped_rows(batch) for batch in read_arrow(storage, path).to_batches()]


def _stepped_rows(batch: Any) -> SteppedRows:
    sequences = batch.column("sequence").to_numpy()
    steps = Steps(*_listed(batch.column("steps")), *_listed(batch.column("leaps")))
    return SteppedRows(sequences, steps, _BINDINGS.name in batch.schema.names)


def _rows(batch: Any) -> MatchRows:
    stepped = _stepped_rows(batch)
    bound = batch.column(_BINDINGS.name) if _BINDINGS.name in batch.schema.names else None
    return MatchRows(stepped.sequences, stepped.steps.offsets, stepped.steps.ids(), bound)


def _listed(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    offsets = np.asarray(column.offsets.to_numpy(), dtype=np.int64)
    return offsets - offsets[0], column.values.to_numpy()[offsets[0] : offsets[-1]]


def joined(parts: Sequence[MatchRows]) -> MatchRows:
    """Several runs of matches as one, or several layers of a run: one row an item, in order."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    bound = None
    if any(part.bindings is not None for part in parts):
        missing = (pa.nulls(len(part.sequences), _BINDINGS.type) for part in parts)
        bound = pa.concat_arrays(
            [none if part.bindings is None else part.bindings for part, none in zip(parts, missing, strict=True)]
        )
    rows = MatchRows(
        np.concatenate([part.sequences for part in parts]),
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        np.concatenate([part.queries for part in parts]),
        bound,
    )
    return united(rows)


def united(rows: MatchRows) -> MatchRows:
    """Rows of which an item may have several, in any order, as one row an item, in order, its queries ascending.

    Rows that are so already, as nearly all are, cost one look at their sequences.

    >>> several = MatchRows(np.array([4, 6, 4]), np.array([0, 2, 3, 4]), np.array([1, 9, 1, 3]))
    >>> one = united(several)
    >>> one.sequences.tolist(), one.offsets.tolist(), one.queries.tolist()
    ([4, 6], [0, 3, 4], [1, 3, 9, 1])
    """
    if _ascend(rows.sequences):
        return rows
    order = np.argsort(rows.sequences, kind="stable")
    found, items = np.unique(rows.sequences[order], return_inverse=True)
    lengths, starts = np.diff(rows.offsets)[order], rows.offsets[order]
    counts = np.zeros(len(found) + 1, dtype=np.int64)
    queries = np.empty(len(rows.queries), dtype=np.int64)
    filled = 0
    for low, high in pairwise(_blocks(items, lengths)):
        owners = np.repeat(items[low:high] - items[low], lengths[low:high])
        begun = np.cumsum(lengths[low:high]) - lengths[low:high]
        places = np.arange(len(owners)) + np.repeat(starts[low:high] - begun, lengths[low:high])
        owners, some = _in_order(owners, rows.queries[places])
        counts[items[low] + 1 : items[high - 1] + 2] = np.bincount(owners, minlength=items[high - 1] - items[low] + 1)
        queries[filled : filled + len(some)] = some
        filled += len(some)
    bound = None if rows.bindings is None else _united_bindings(rows.bindings, order, items, len(found))
    return MatchRows(found, np.cumsum(counts), queries[:filled], bound)


def _ascend(sequences: npt.NDArray[np.int64]) -> bool:
    return bool(np.all(sequences[1:] > sequences[:-1]))


def _blocks(items: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[int]:
    """Where to cut rows, of items that ascend, into blocks of not many more matches than one, and whole items."""
    begun = np.cumsum(lengths) - lengths
    first = np.flatnonzero(np.diff(items, prepend=-1))
    return [*first[np.flatnonzero(np.diff(begun[first] // _BLOCK, prepend=-1))].tolist(), len(items)]


def _in_order(
    owners: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The queries of owners, which ascend, in order for each of them, every one once."""
    if not len(queries):
        return owners, queries
    scale = int(queries.max()) + 1
    if queries.min() >= 0 and (int(owners[-1]) + 1) * scale < 1 << 63:
        # One number for both sorts many times faster than two, and rows ascend already, which this kind makes use of.
        base = owners * scale
        queries = base + queries
        queries.sort(kind="stable")
        queries -= base  # the owners have stayed where they were
    else:
        queries = queries[np.lexsort((queries, owners))]
    fresh = np.ones(len(queries), dtype=bool)
    fresh[1:] = (queries[1:] != queries[:-1]) | (owners[1:] != owners[:-1])
    return (owners, queries) if fresh.all() else (owners[fresh], queries[fresh])


def _united_bindings(bindings: Any, order: npt.NDArray[np.int64], items: npt.NDArray[np.int64], count: int) -> Any:
    """The bindings of so many items: of the rows in this order, each of which belongs to one of the items."""
    filled = bindings.is_valid().to_numpy(False)[order]
    rows, of = order[filled], items[filled]
    starts = np.searchsorted(of, np.arange(count + 1))
    counts = np.diff(starts)
    places = np.zeros(count, dtype=np.int64)
    places[counts > 0] = rows[starts[:-1][counts > 0]]
    first = bindings.take(pa.array(places, mask=counts == 0))
    several = np.flatnonzero(counts > 1)
    if not len(several):
        return first
    texts = (bindings.take(pa.array(rows[starts[one] : starts[one + 1]])).to_pylist() for one in several.tolist())
    # Each text is a list of what some queries have: the lists are put end to end, and are not looked into.
    spliced = [f"[{','.join(text[1:-1] for text in some)}]" for some in texts]
    return pc.replace_with_mask(first, pa.array(counts > 1), pa.array(spliced, first.type))


def write_rows(storage: Storage, path: str, rows: MatchRows, sequences: tuple[int, int]) -> MatchPart:
    """Write matches as one part, in one piece."""
    bound = rows.bindings
    if bound is not None and bound.null_count == len(bound):
        bound = None
    records = _records(rows.sequences, _steps_of(rows.offsets, rows.queries), bound)
    file = write_arrow(storage, path, [records], records.schema)
    return MatchPart(file.path, sequences[0], sequences[1], file.size)
