"""Items of windows, with the indexes that find them: built in memory, or mapped from a file.

In: the items that reached the gates of windows. Out: the members of each window, and an index for each attribute that
joins compare. All windows share the items and the indexes, because two windows often have the same items.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.arrays import offsets_of
from runnel.errors import CorruptDataError
from runnel.matching.joins.item_texts import sort_texts
from runnel.matching.joins.item_values import decode_values
from runnel.matching.joins.term_index import TermIndex, merge_term_indexes
from runnel.matching.joins.window_members import WindowMembers, merge_members
from runnel.matching.joins.window_terms import value_of_key
from runnel.matching.joins.word_index import PREFIXES, WordIndex, merge_word_indexes
from runnel.model.item import Attributes, Value

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Column = tuple[str, str]
"""An attribute, and the kind of index that finds its values (see `index_of`)."""

Index = WordIndex | TermIndex

_FORMAT = b"runnel.format"
_COLUMNS = b"runnel.columns"


@dataclass(frozen=True)
class WindowItems:
    """Window items by ascending sequences: their source feeds and ids, the windows that they are in, and indexes.

    `feeds` are the source feeds of all items, and `feed_numbers` their positions there. `values` has, as JSON, the
    attributes of each item that conditions read and that no index can answer exactly.
    """

    sequences: Numbers
    accepted: Numbers
    feeds: Numbers
    feed_numbers: Array
    id_starts: Array
    ids: Array
    value_starts: Array
    values: Array
    members: WindowMembers
    indexes: Mapping[Column, Index]

    def __len__(self) -> int:
        return len(self.sequences)

    def members_of(self, window: int) -> Numbers:
        """Return the rows of the items in a window."""
        return self.members.rows_of(window)

    def identity(self, row: int) -> tuple[int, bytes]:
        """Return the source feed and the id of an item. Versions of an item have the same."""
        identifier = self.ids[self.id_starts[row] : self.id_starts[row + 1]].tobytes()
        return int(self.feeds[self.feed_numbers[row]]), identifier

    def attributes(self, row: int) -> Attributes:
        """Return the attributes of an item whose values are stored. They are decoded once."""
        decoded = self._decoded.get(row)
        if decoded is None:
            stored = b""
            if len(self.value_starts):
                stored = self.values[self.value_starts[row] : self.value_starts[row + 1]].tobytes()
            decoded = self._decoded[row] = decode_values(stored)
        return decoded

    def comparable(self, row: int) -> Attributes:
        """Return values of an item that compare like those that it had: its stored values, and texts of its words."""
        attributes = dict(self.attributes(row))
        for (name, kind), index in self.indexes.items():
            values: list[Value] = list(index.texts_of(row)) if isinstance(index, WordIndex) else []
            if isinstance(index, TermIndex):
                terms = index.terms_of(row)
                values = [value_of_key(term) for term in terms] if kind == "values" else list(terms)
            attributes[name] = (*attributes.get(name, ()), *values)
        return attributes

    @cached_property
    def _decoded(self) -> dict[int, Attributes]:
        return {}

    def to_records(self) -> Any:
        """Return the record batch to store: one row, whose columns are arrays."""
        arrays: dict[str, Array] = {**{name: getattr(self, name) for name in _OWN}, **self.members.arrays()}
        columns = sorted(self.indexes)
        for number, column in enumerate(columns):
            arrays |= {f"{number}.{name}": array for name, array in self.indexes[column].arrays().items()}
        lists = [
            pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), pa.array(array))
            for array in arrays.values()
        ]
        metadata = {_FORMAT: b"windows/1", _COLUMNS: json.dumps(columns).encode()}
        fields = [pa.field(name, each.type, nullable=False) for name, each in zip(arrays, lists, strict=True)]
        return pa.RecordBatch.from_arrays(lists, schema=pa.schema(fields, metadata))

    @staticmethod
    def from_table(table: Any) -> WindowItems:
        """Return stored window items, without copying them. Raise CorruptDataError if the table is damaged."""
        try:
            arrays = {name: table.column(name).chunk(0).values.to_numpy() for name in table.schema.names}
            indexes: dict[Column, Index] = {}
            for number, (name, kind) in enumerate(json.loads(table.schema.metadata[_COLUMNS])):
                prefix = f"{number}."
                own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
                indexes[name, kind] = WordIndex.stored(kind, own) if kind in PREFIXES else TermIndex.stored(own)
            members = WindowMembers.stored(len(arrays["sequences"]), arrays)
            return WindowItems(**{name: arrays[name] for name in _OWN}, members=members, indexes=indexes)
        except (LookupError, ValueError, TypeError) as error:
            raise CorruptDataError("a file of windows has an unknown format") from error


_OWN = ("sequences", "accepted", "feeds", "feed_numbers", "id_starts", "ids", "value_starts", "values")


@dataclass(frozen=True, slots=True)
class ListedTexts:
    """The texts or terms of an attribute: the text `texts[i]`, encoded, is of the row `rows[i]`. Rows are ascending.

    For an index of words, a text has its distinct words, separated by spaces.
    """

    rows: Numbers
    texts: Any


@dataclass(frozen=True, slots=True)
class NewItems:
    """Items to index, by ascending sequences: `ids` and `values` are Arrow arrays of bytes.

    `rows` and `windows` are the pairs of an item's row and the key of a window that it is in.
    """

    sequences: Numbers
    accepted: Numbers
    feeds: Numbers
    ids: Any
    values: Any
    rows: Numbers
    windows: Numbers
    texts: Mapping[Column, ListedTexts]


def index_items(items: NewItems) -> WindowItems:
    """Index items."""
    count = len(items.sequences)
    feeds, numbers = np.unique(items.feeds, return_inverse=True)
    indexes: dict[Column, Index] = {}
    for (name, kind), listed in items.texts.items():
        indexes[name, kind] = _index_words(kind, listed, count) if kind in PREFIXES else _index_terms(listed)
    return WindowItems(
        items.sequences,
        items.accepted,
        feeds,
        numbers.reshape(-1).astype(np.min_scalar_type(max(0, len(feeds) - 1))),
        *_flat(items.ids),
        *_flat_values(items.values),
        WindowMembers.of(count, items.rows, items.windows),
        indexes,
    )


def no_items() -> WindowItems:
    """Return a part without items."""
    none = np.empty(0, dtype=np.int64)
    texts = pa.array([], pa.large_binary())
    return index_items(NewItems(none, none, none, texts, texts, none, none, {}))


def _index_words(kind: str, listed: ListedTexts, count: int) -> WordIndex:
    owners, words = split_words(listed.texts)
    texts, positions = sort_texts(words)
    lengths = np.bincount(owners, minlength=len(listed.rows))
    return WordIndex.of(kind, texts, listed.rows, lengths, positions, count)


def _index_terms(listed: ListedTexts) -> TermIndex:
    texts, positions = sort_texts(listed.texts)
    return TermIndex.of(texts, listed.rows, positions)


def split_words(texts: Any) -> tuple[Numbers, Any]:
    """Return the words of texts, which are separated by spaces, and for each word the number of its text.

    >>> owners, words = split_words(pa.array([b"red rock", b""], pa.large_binary()))
    >>> owners.tolist(), words.to_pylist()
    ([0, 0], [b'red', b'rock'])
    """
    lists = pc.split_pattern(texts, pattern=b" ")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    owners, words = np.repeat(np.arange(len(texts)), lengths), lists.flatten()
    has_letters = pc.greater(pc.binary_length(words), 0)
    return owners[np.asarray(has_letters)], words.filter(has_letters)


def _flat(texts: Any) -> tuple[Array, Array]:
    """Return the offsets and the bytes of an Arrow array of type large_binary."""
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False)
    whole = b"".join(text for text in texts.to_pylist() if text) if texts.null_count else None
    if whole is None:
        offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset :] if len(texts) else [0]
        buffer = texts.buffers()[2]
        data = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, dtype=np.uint8)[int(offsets[0]) :]
    else:
        data = np.frombuffer(whole, dtype=np.uint8)
    starts = offsets_of(lengths)
    return starts.astype(np.uint32), data[: int(starts[-1])]


def _flat_values(values: Any) -> tuple[Array, Array]:
    """Return the offsets and the bytes of values, both empty if there are none."""
    starts, data = _flat(values)
    return (starts, data) if len(data) else (starts[:0], data)


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
    kept = np.flatnonzero(np.concatenate(chosen))[order]
    moved[kept] = np.arange(len(order))
    moved_rows = np.split(moved, np.cumsum([len(part) for part in parts])[:-1])
    feeds, feed_numbers = np.unique(
        np.concatenate([part.feeds[part.feed_numbers] for part in parts])[kept], return_inverse=True
    )
    columns = sorted({column for part in parts for column in part.indexes})
    return WindowItems(
        sequences[order],
        np.concatenate([part.accepted for part in parts])[kept],
        feeds,
        feed_numbers.reshape(-1).astype(np.min_scalar_type(max(0, len(feeds) - 1))),
        *_merge_bytes([(part.id_starts, part.ids) for part in parts], kept),
        *_merge_values(parts, kept),
        merge_members([part.members for part in parts], moved_rows, len(order)),
        {column: _merge_indexes(column, parts, moved_rows, len(order)) for column in columns},
    )


def _merge_indexes(column: Column, parts: Sequence[WindowItems], moved: Sequence[Numbers], count: int) -> Index:
    indexes: list[Any] = [part.indexes.get(column) for part in parts]
    if column[1] in PREFIXES:
        return merge_word_indexes(column[1], indexes, moved, count)
    return merge_term_indexes(indexes, moved)


def _merge_bytes(texts: Sequence[tuple[Array, Array]], kept: Numbers) -> tuple[Array, Array]:
    """Return the texts at some positions of the concatenated ones."""
    arrays = [
        pa.Array.from_buffers(
            pa.large_binary(),
            len(starts) - 1,
            [None, pa.py_buffer(starts.astype(np.int64)), pa.py_buffer(np.ascontiguousarray(data))],
        )
        for starts, data in texts
    ]
    return _flat(pa.concat_arrays(arrays).take(pa.array(kept)))


def _merge_values(parts: Sequence[WindowItems], kept: Numbers) -> tuple[Array, Array]:
    if not any(len(part.value_starts) for part in parts):
        return parts[0].value_starts, parts[0].values
    texts = [
        (part.value_starts if len(part.value_starts) else np.zeros(len(part) + 1, np.uint32), part.values)
        for part in parts
    ]
    starts, data = _merge_bytes(texts, kept)
    return (starts, data) if len(data) else (starts[:0], data)
