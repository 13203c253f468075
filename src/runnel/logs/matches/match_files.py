"""Match parts as files, written by workers. This module does not import the catalog, so that workers start quickly.

A part is an Arrow file with MATCH_SCHEMA and one row per item with a match. It becomes visible when its batch is
committed. An item may match ten thousand queries, so their ascending ids are stored as differences of two bytes,
called steps. A longer step is stored as LEAP, and the row's next leap contains its value.

A part with bindings or annotations, called details, has DETAILED_SCHEMA: a row may contain those of its queries as a
JSON list. An item that must pass a gate has its bindings before its match, so a row without queries is not a match.

If the queries are partitioned, a file contains the rows of one partition after those of another, so an item may have
several rows. Several files, called *layers*, may contain rows of the same items. Readers combine them into one row
per item.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.model.annotation import Annotation, decode_annotations
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

_DETAILS = pa.field("details", pa.large_string())
DETAILED_SCHEMA = MATCH_SCHEMA.append(_DETAILS).with_metadata({"runnel.format": "detailed matches/1"})

_T = TypeVar("_T")

_BLOCK = 500_000
"""Number of matches that are combined at a time, small enough to reuse memory."""


@dataclass(frozen=True)
class MatchRows:
    """Decoded matches: the item `sequences[i]` satisfies the queries of row i.

    `details` is an Arrow array with the bindings and annotations of each row as JSON or null, or None if there are
    none at all.
    """

    sequences: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int64]
    details: Any = None

    def of_queries(
        self, wanted: Collection[int] | npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the (sequence, query) pairs of these queries, in order of sequence."""
        ids = wanted if isinstance(wanted, np.ndarray) else np.fromiter(wanted, dtype=np.int64, count=len(wanted))
        chosen = np.flatnonzero(np.isin(self.queries, ids))
        rows = np.searchsorted(self.offsets, chosen, side="right") - 1
        return self.sequences[rows], self.queries[chosen]

    def between(self, after: int, upto: int) -> MatchRows:
        """Return the rows of the items in (after, upto]."""
        low, high = np.searchsorted(self.sequences, [after + 1, upto + 1])
        base = self.offsets[low]
        return MatchRows(
            self.sequences[low:high],
            self.offsets[low : high + 1] - base,
            self.queries[base : self.offsets[high]],
            None if self.details is None else self.details[low:high],
        )

    def matched(self) -> MatchRows:
        """Return the rows of items with a match, without the rows that only have bindings."""
        matched_rows = np.flatnonzero(np.diff(self.offsets))
        if len(matched_rows) == len(self.sequences):
            return self
        return MatchRows(
            self.sequences[matched_rows],
            np.append(self.offsets[matched_rows], self.offsets[-1]),
            self.queries,
            None if self.details is None else self.details.take(pa.array(matched_rows)),
        )

    def bindings_of(self, wanted: Mapping[int, Collection[int]]) -> dict[tuple[int, int], Bindings]:
        """Return the bindings of the wanted queries, given by sequence, as a mapping by query and sequence."""
        return self._details_of(wanted, decode_bindings)

    def annotations_of(self, wanted: Mapping[int, Collection[int]]) -> dict[tuple[int, int], tuple[Annotation, ...]]:
        """Return the annotations of the wanted queries, as `bindings_of` returns bindings."""
        return self._details_of(wanted, decode_annotations)

    def first_joined(self) -> int | None:
        """Return the lowest sequence of an item that a match joined, or None if no match joined any."""
        if self.details is None:
            return None
        ids = set(self.queries.tolist())
        annotations = (decode_annotations(text, ids) for text in self.details.drop_null().to_pylist())
        several = (each for by_query in annotations for each in by_query.values())
        return min((min(joined.newest) for each in several for joined in each if joined.newest), default=None)

    def _details_of(
        self, wanted: Mapping[int, Collection[int]], decode: Callable[[str, Collection[int]], Mapping[int, _T]]
    ) -> dict[tuple[int, int], _T]:
        details: dict[tuple[int, int], _T] = {}
        if self.details is None:
            return details
        sequences = np.fromiter(wanted, dtype=np.int64, count=len(wanted))
        rows = np.flatnonzero(np.isin(self.sequences, sequences) & self.details.is_valid().to_numpy(False))
        for row in rows.tolist():
            sequence = int(self.sequences[row])
            matched = set(self.queries[self.offsets[row] : self.offsets[row + 1]].tolist())
            decoded = decode(self.details[row].as_py(), matched.intersection(wanted[sequence]))
            details |= {(query, sequence): value for query, value in decoded.items()}
        return details


@dataclass(frozen=True)
class SteppedRows:
    """Encoded matches as in a file: row i has the steps of the queries that `sequences[i]` satisfies.

    An item may have several rows.
    """

    sequences: npt.NDArray[np.int64]
    steps: Steps
    has_details: bool = False


def match_records(sequences: npt.NDArray[np.int64], matches: Matches, bindings: MatchBindings | None = None) -> Any:
    """Return a record batch of the items with a match, with DETAILED_SCHEMA if there are bindings, else MATCH_SCHEMA.

    Items with bindings are included even without a match, because their matches may have to pass a gate.
    """
    steps = matches.steps if isinstance(matches, SteppedMatches) else _steps_of(matches.offsets, matches.queries)
    texts = [encode_bindings(bindings.get(sequence, {})) for sequence in sequences.tolist()] if bindings else []
    kept = np.flatnonzero(np.diff(steps.offsets))
    if any(texts):
        kept = np.union1d(kept, [row for row, text in enumerate(texts) if text])
    ends = np.append(kept, len(sequences))
    stored = Steps(steps.offsets[ends], steps.steps, steps.leap_offsets[ends], steps.leaps)
    bound = pa.array([texts[row] for row in kept.tolist()], _DETAILS.type) if any(texts) else None
    return _records(sequences[kept], stored, bound)


def _steps_of(offsets: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]) -> Steps:
    # Imported here, because readers of matches do not need compiled code.
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
    return pa.RecordBatch.from_arrays([*columns, bindings], schema=DETAILED_SCHEMA)


def _lists(offsets: npt.NDArray[np.int64], values: npt.NDArray[Any], field: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), type=field.type)


def write_part(storage: Storage, lineage: int, batches: Sequence[Any], sequences: tuple[int, int]) -> MatchPart:
    """Write a part under a name that no other attempt uses."""
    path = f"matches/{lineage}/{sequences[0]:020d}-{uuid.uuid4().hex}.arrow"
    if any(_DETAILS.name in batch.schema.names for batch in batches):
        file = write_arrow(storage, path, [_with_details(batch) for batch in batches], DETAILED_SCHEMA)
    else:
        file = write_arrow(storage, path, list(batches), MATCH_SCHEMA)
    return MatchPart(file.path, sequences[0], sequences[1], file.size)


def _with_details(batch: Any) -> Any:
    """Return a batch with DETAILED_SCHEMA."""
    if _DETAILS.name in batch.schema.names:
        return batch
    columns = [*batch.columns, pa.nulls(batch.num_rows, _DETAILS.type)]
    return pa.RecordBatch.from_arrays(columns, schema=DETAILED_SCHEMA)


def has_details(storage: Storage, path: str) -> bool:
    """Return whether a part has bindings or annotations, without reading its matches."""
    return _DETAILS.name in read_arrow(storage, path).schema.names


def repeats_items(storage: Storage, path: str) -> bool:
    """Return whether a part has several rows per item or unordered rows, without reading its matches."""
    return not _ascend(read_arrow(storage, path).column("sequence").to_numpy())


def read_part(storage: Storage, path: str) -> MatchRows:
    """Read the matches of a part, one row per item, in order."""
    batches = read_arrow(storage, path).combine_chunks().to_batches()
    if not batches:
        empty = np.empty(0, dtype=np.int64)
        return MatchRows(empty, np.zeros(1, dtype=np.int64), empty)
    return united(_rows(batches[0]))


def read_steps(storage: Storage, path: str) -> list[SteppedRows]:
    """Map the encoded matches of a part into memory without decoding them."""
    return [_stepped_rows(batch) for batch in read_arrow(storage, path).to_batches()]


def _stepped_rows(batch: Any) -> SteppedRows:
    sequences = batch.column("sequence").to_numpy()
    steps = Steps(*_listed(batch.column("steps")), *_listed(batch.column("leaps")))
    return SteppedRows(sequences, steps, _DETAILS.name in batch.schema.names)


def _rows(batch: Any) -> MatchRows:
    stepped = _stepped_rows(batch)
    bound = batch.column(_DETAILS.name) if _DETAILS.name in batch.schema.names else None
    return MatchRows(stepped.sequences, stepped.steps.offsets, stepped.steps.ids(), bound)


def _listed(column: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    offsets = np.asarray(column.offsets.to_numpy(), dtype=np.int64)
    return offsets - offsets[0], column.values.to_numpy()[offsets[0] : offsets[-1]]


def joined(parts: Sequence[MatchRows]) -> MatchRows:
    """Combine several ranges of matches, or several layers of a range: one row per item, in order."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    bound = None
    if any(part.details is not None for part in parts):
        missing = (pa.nulls(len(part.sequences), _DETAILS.type) for part in parts)
        bound = pa.concat_arrays(
            [none if part.details is None else part.details for part, none in zip(parts, missing, strict=True)]
        )
    rows = MatchRows(
        np.concatenate([part.sequences for part in parts]),
        np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
        np.concatenate([part.queries for part in parts]),
        bound,
    )
    return united(rows)


def united(rows: MatchRows) -> MatchRows:
    """Combine rows so that each item has one row, in order, with ascending queries.

    Nearly all rows already have this form. For them, only the sequences are checked.

    >>> several = MatchRows(np.array([4, 6, 4]), np.array([0, 2, 3, 4]), np.array([1, 9, 1, 3]))
    >>> one = united(several)
    >>> one.sequences.tolist(), one.offsets.tolist(), one.queries.tolist()
    ([4, 6], [0, 3, 4], [1, 3, 9, 1])
    """
    if _ascend(rows.sequences):
        return rows
    order = np.argsort(rows.sequences, kind="stable")
    sequences, items = np.unique(rows.sequences[order], return_inverse=True)
    lengths, starts = np.diff(rows.offsets)[order], rows.offsets[order]
    counts = np.zeros(len(sequences) + 1, dtype=np.int64)
    queries = np.empty(len(rows.queries), dtype=np.int64)
    filled = 0
    for low, high in pairwise(_blocks(items, lengths)):
        owners = np.repeat(items[low:high] - items[low], lengths[low:high])
        begun = np.cumsum(lengths[low:high]) - lengths[low:high]
        places = np.arange(len(owners)) + np.repeat(starts[low:high] - begun, lengths[low:high])
        owners, block = _in_order(owners, rows.queries[places])
        counts[items[low] + 1 : items[high - 1] + 2] = np.bincount(owners, minlength=items[high - 1] - items[low] + 1)
        queries[filled : filled + len(block)] = block
        filled += len(block)
    bound = None if rows.details is None else _united_details(rows.details, order, items, len(sequences))
    return MatchRows(sequences, np.cumsum(counts), queries[:filled], bound)


def _ascend(sequences: npt.NDArray[np.int64]) -> bool:
    return bool(np.all(sequences[1:] > sequences[:-1]))


def _blocks(items: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[int]:
    """Return where to split ascending rows into blocks of about _BLOCK matches, without splitting an item."""
    begun = np.cumsum(lengths) - lengths
    first = np.flatnonzero(np.diff(items, prepend=-1))
    return [*first[np.flatnonzero(np.diff(begun[first] // _BLOCK, prepend=-1))].tolist(), len(items)]


def _in_order(
    owners: npt.NDArray[np.int64], queries: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sort the queries of each owner and remove duplicates. Owners are ascending."""
    if not len(queries):
        return owners, queries
    scale = int(queries.max()) + 1
    if queries.min() >= 0 and (int(owners[-1]) + 1) * scale < 1 << 63:
        # Sorting by one combined key is much faster than by two, and a stable sort benefits from ordered rows.
        base = owners * scale
        queries = base + queries
        queries.sort(kind="stable")
        queries -= base  # the owners were already in order
    else:
        queries = queries[np.lexsort((queries, owners))]
    fresh = np.ones(len(queries), dtype=bool)
    fresh[1:] = (queries[1:] != queries[:-1]) | (owners[1:] != owners[:-1])
    return (owners, queries) if fresh.all() else (owners[fresh], queries[fresh])


def splice_details(texts: Iterable[str]) -> str:
    """Concatenate details of an item. Each text is a JSON list, so they need not be parsed.

    >>> splice_details(['[1]', '[2,3]'])
    '[1,2,3]'
    """
    return f"[{','.join(text[1:-1] for text in texts)}]"


def _united_details(details: Any, order: npt.NDArray[np.int64], items: npt.NDArray[np.int64], count: int) -> Any:
    """Combine the details of `count` items. `order` sorts the rows, and each row belongs to one of the items."""
    filled = details.is_valid().to_numpy(False)[order]
    rows, of = order[filled], items[filled]
    starts = np.searchsorted(of, np.arange(count + 1))
    counts = np.diff(starts)
    places = np.zeros(count, dtype=np.int64)
    places[counts > 0] = rows[starts[:-1][counts > 0]]
    first = details.take(pa.array(places, mask=counts == 0))
    several = np.flatnonzero(counts > 1)
    if not len(several):
        return first
    texts = (details.take(pa.array(rows[starts[item] : starts[item + 1]])).to_pylist() for item in several.tolist())
    spliced = list(map(splice_details, texts))
    return pc.replace_with_mask(first, pa.array(counts > 1), pa.array(spliced, first.type))


def write_rows(storage: Storage, path: str, rows: MatchRows, sequences: tuple[int, int]) -> MatchPart:
    """Write matches as one part."""
    bound = rows.details
    if bound is not None and bound.null_count == len(bound):
        bound = None
    records = _records(rows.sequences, _steps_of(rows.offsets, rows.queries), bound)
    file = write_arrow(storage, path, [records], records.schema)
    return MatchPart(file.path, sequences[0], sequences[1], file.size)
