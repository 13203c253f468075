"""Items of windows, with the indexes that find them: built in memory, or mapped from a file.

In: the items that reached the gates of windows. Out: the members of each window, and the items that are listed under
a term. All windows share the items and the indexes, because two windows often have the same items.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.arrays import Rows, offsets_of
from runnel.errors import CorruptDataError
from runnel.matching.joins.window_terms import listed_terms
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue

Numbers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_NO_ROWS: Numbers = np.empty(0, dtype=np.int64)
_LISTS = {
    "sequences": pa.int64(),
    "accepted": pa.int64(),
    "entries": pa.large_binary(),
    "windows": pa.int64(),
    "member_offsets": pa.int64(),
    "member_rows": pa.int64(),
    "terms": pa.uint64(),
    "term_offsets": pa.int64(),
    "term_rows": pa.int64(),
}
WINDOW_SCHEMA = pa.schema(
    [pa.field(name, pa.large_list(kind), nullable=False) for name, kind in _LISTS.items()],
    metadata={"runnel.format": "windows/1"},
)
"""A file has one row. Its columns are the arrays of a `WindowItems`."""

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """An item as a window stores it: its source feed, its id, and the attributes that joins read."""

    feed: int
    id: str
    attributes: Attributes

    def encode(self) -> bytes:
        """Encode the entry as JSON. Structured values are left out, because joins cannot compare them."""
        values = {
            name: [_encode_value(value) for value in several if not isinstance(value, StructuredValue)]
            for name, several in self.attributes.items()
        }
        return json.dumps([self.feed, self.id, values], ensure_ascii=True, separators=(",", ":")).encode("ascii")

    @staticmethod
    def decode(data: bytes) -> Entry:
        """Decode an entry. Raise CorruptDataError if it is damaged."""
        try:
            feed, item, values = json.loads(data)
            return Entry(feed, item, {name: tuple(map(_decode_value, several)) for name, several in values.items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptDataError("an entry of a window cannot be decoded") from error


def _encode_value(value: Value) -> Any:
    return {"moment": value.isoformat()} if isinstance(value, datetime) else value


def _decode_value(value: Any) -> Value:
    if isinstance(value, dict):
        return datetime.fromisoformat(value["moment"]).astimezone(UTC)
    return value if isinstance(value, str | bool) else float(value)


@dataclass(frozen=True, slots=True)
class WindowItem:
    """An item, the windows that it is in, and the columns of these windows."""

    sequence: int
    accepted: int
    entry: bytes
    windows: tuple[int, ...]
    columns: Columns


@dataclass(frozen=True)
class WindowItems:
    """Window items by ascending sequences; `members` has the rows of each of the ascending `windows`.

    `postings` has the rows that are listed under each of the ascending `terms`.
    """

    sequences: Numbers
    accepted: Numbers
    entries: Any
    windows: Numbers
    members: Rows
    terms: npt.NDArray[np.uint64]
    postings: Rows

    def __len__(self) -> int:
        return len(self.sequences)

    def members_of(self, window: int) -> Numbers:
        """Return the rows of the items in a window."""
        position = int(np.searchsorted(self.windows, window))
        if position == len(self.windows) or self.windows[position] != window:
            return _NO_ROWS
        return self.members.row(position)

    def posting(self, term: int) -> Numbers:
        """Return the rows that are listed under a term."""
        position = int(np.searchsorted(self.terms, np.uint64(term)))
        if position == len(self.terms) or int(self.terms[position]) != term:
            return _NO_ROWS
        return self.postings.row(position)

    def entry(self, row: int) -> Entry:
        """Return the entry of a row."""
        decoded = self._decoded.get(row)
        if decoded is None:
            decoded = self._decoded[row] = Entry.decode(self.entries[row].as_py())
        return decoded

    @cached_property
    def _decoded(self) -> dict[int, Entry]:
        return {}

    @staticmethod
    def of(items: Iterable[WindowItem]) -> WindowItems:
        """Index items, which are given by ascending sequences."""
        kept = list(items)
        terms: dict[int, list[int]] = {}
        members: dict[int, list[int]] = {}
        for row, item in enumerate(kept):
            for term in listed_terms(item.columns, Entry.decode(item.entry).attributes):
                terms.setdefault(term, []).append(row)
            for window in item.windows:
                members.setdefault(window, []).append(row)
        ordered_terms, ordered_windows = sorted(terms), sorted(members)
        return WindowItems(
            np.fromiter((item.sequence for item in kept), dtype=np.int64, count=len(kept)),
            np.fromiter((item.accepted for item in kept), dtype=np.int64, count=len(kept)),
            pa.array([item.entry for item in kept], pa.large_binary()),
            np.array(ordered_windows, dtype=np.int64),
            Rows.of((members[window] for window in ordered_windows), dtype=np.int64),
            np.array(ordered_terms, dtype=np.uint64),
            Rows.of((terms[term] for term in ordered_terms), dtype=np.int64),
        )

    def to_records(self) -> Any:
        """Return the record batch to store."""
        arrays: dict[str, Any] = {
            "sequences": self.sequences,
            "accepted": self.accepted,
            "entries": self.entries,
            "windows": self.windows,
            "member_offsets": self.members.offsets.astype(np.int64),
            "member_rows": self.members.values.astype(np.int64),
            "terms": self.terms,
            "term_offsets": self.postings.offsets.astype(np.int64),
            "term_rows": self.postings.values.astype(np.int64),
        }
        lists = [
            pa.LargeListArray.from_arrays(pa.array([0, len(arrays[name])], pa.int64()), pa.array(arrays[name], kind))
            for name, kind in _LISTS.items()
        ]
        return pa.RecordBatch.from_arrays(lists, schema=WINDOW_SCHEMA)

    @staticmethod
    def from_table(table: Any) -> WindowItems:
        """Return the window items of a stored table, without copying them."""
        values = {name: table.column(name).combine_chunks().values for name in _LISTS}
        numbers = {name: column.to_numpy() for name, column in values.items() if name != "entries"}
        return WindowItems(
            numbers["sequences"],
            numbers["accepted"],
            values["entries"],
            numbers["windows"],
            Rows(numbers["member_offsets"], numbers["member_rows"]),
            numbers["terms"],
            Rows(numbers["term_offsets"], numbers["term_rows"]),
        )


def merge_window_items(
    parts: Sequence[WindowItems], keep: Callable[[WindowItems], Booleans] | None = None
) -> WindowItems:
    """Merge the indexes of several parts into one. `keep` chooses the rows of a part that are still needed.

    An item may be in several parts, if a window was filled later than others. It then has several rows.
    """
    chosen = [np.ones(len(part), dtype=np.bool_) if keep is None else keep(part) for part in parts]
    sequences = np.concatenate([part.sequences[rows] for part, rows in zip(parts, chosen, strict=True)])
    order = np.argsort(sequences, kind="stable")
    # The new row of every old row, or -1 if it is dropped.
    moved = np.full(sum(map(len, parts)), -1, dtype=np.int64)
    moved[np.flatnonzero(np.concatenate(chosen))[order]] = np.arange(len(order))
    starts = np.cumsum([0, *map(len, parts)])[:-1].tolist()
    kept_rows = [pa.array(np.flatnonzero(rows)) for rows in chosen]
    entries = [part.entries.take(rows) for part, rows in zip(parts, kept_rows, strict=True)]
    accepted = np.concatenate([part.accepted[rows] for part, rows in zip(parts, chosen, strict=True)])
    windows, members = _merge_lists([(part.windows, part.members) for part in parts], moved, starts)
    terms, postings = _merge_lists([(part.terms, part.postings) for part in parts], moved, starts)
    return WindowItems(
        sequences[order],
        accepted[order],
        pa.concat_arrays(entries).take(pa.array(order)),
        windows,
        members,
        terms,
        postings,
    )


def _merge_lists(
    lists: Sequence[tuple[npt.NDArray[Any], Rows]], moved: Numbers, starts: Sequence[int]
) -> tuple[npt.NDArray[Any], Rows]:
    """Merge lists of rows by key. Rows are counted from `starts` in `moved`, which has their new numbers."""
    keys = np.concatenate([np.repeat(keys, rows.lengths) for keys, rows in lists])
    rows = moved[np.concatenate([own.values + start for (_, own), start in zip(lists, starts, strict=True)])]
    keys, rows = keys[rows >= 0], rows[rows >= 0]
    order = np.lexsort((rows, keys))
    merged, counts = np.unique(keys, return_counts=True)
    return merged, Rows(offsets_of(counts), rows[order])
