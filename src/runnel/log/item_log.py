"""The item log: accepting items, and reading them again by sequence or by time.

A segment of the tier `log` holds only what the publisher gave; sequence and time come from its manifest row, so that
the file can be written before the transaction that accepts it. Archived segments hold both as columns.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.catalog import items as manifest
from runnel.catalog.connection import Catalog
from runnel.catalog.items import LOG, ItemSegment, Seen
from runnel.catalog.sequencer import last_sequence, take_sequences
from runnel.log.arrow_files import read_arrow, read_parquet_rows, write_arrow
from runnel.log.fingerprint import fingerprint
from runnel.log.storage import Storage
from runnel.model.batch import ITEM_SCHEMA, ItemBatch
from runnel.model.item import Item

_STORED = pa.schema(list(ITEM_SCHEMA)[2:], metadata=ITEM_SCHEMA.metadata)
_SEGMENT_ITEMS = 5_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of offered items: the sequences taken, and how many were known already."""

    first_sequence: int | None = None
    last_sequence: int | None = None
    accepted: int = 0
    unchanged: int = 0

    def __add__(self, other: Accepted) -> Accepted:
        firsts = [one for one in (self.first_sequence, other.first_sequence) if one is not None]
        lasts = [one for one in (self.last_sequence, other.last_sequence) if one is not None]
        return Accepted(
            min(firsts, default=None),
            max(lasts, default=None),
            self.accepted + other.accepted,
            self.unchanged + other.unchanged,
        )


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of items inside one segment: what a worker needs to read them without asking the catalog."""

    tier: str
    path: str
    first_row: int
    rows: int
    first_sequence: int
    accepted: int

    @property
    def last_sequence(self) -> int:
        """The sequence of the last item."""
        return self.first_sequence + self.rows - 1


@dataclass(frozen=True, slots=True)
class _Fresh:
    """An item to accept, with its key and fingerprint."""

    key: bytes
    item: Item
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class _Sifted:
    """Offered items held against the seen-set, and what that said: the basis on which they may be accepted."""

    fresh: tuple[_Fresh, ...]
    remember: dict[bytes, bytes]
    keys: tuple[bytes, ...]
    known: dict[bytes, Seen]


def item_key(item_id: str) -> bytes:
    """The seen-set's key of an item id: bounded, whatever the publisher thinks an id is."""
    return blake2b(item_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class ItemLog:
    """The item log of a root."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage

    def accept(self, feed: int, items: Sequence[Item], *, remember: Sequence[Item] = ()) -> Accepted:
        """Accept items of a source feed, in order; known versions are passed over, edited ones get a new version.

        Items to `remember` are only put into the seen-set: they will not be accepted when they come again.
        """
        result = Accepted()
        for start in range(0, max(len(items), 1), _SEGMENT_ITEMS):
            chunk = items[start : start + _SEGMENT_ITEMS]
            result += self._accept(feed, chunk, remember if start == 0 else ())
        return result

    def _accept(self, feed: int, items: Sequence[Item], remember: Sequence[Item]) -> Accepted:
        while True:
            sifted = self._sift(feed, items, remember)
            if not sifted.fresh and not sifted.remember:
                return Accepted(unchanged=len(items))
            path = f"items/log/{uuid.uuid4().hex}.arrow"
            size = self._write(path, feed, sifted.fresh) if sifted.fresh else 0
            done = self._commit(feed, path, size, sifted)
            if done is not None:
                return replace(done, unchanged=len(items) - done.accepted)
            # Another publisher accepted one of these ids since we looked: look again, with a new file.
            self._storage.delete(path)

    def _sift(self, feed: int, items: Sequence[Item], remember: Sequence[Item]) -> _Sifted:
        """Which of the items are new or edited, as far as the seen-set tells now."""
        keyed = [(item_key(item.id), item, fingerprint(item)) for item in items]
        recalled = {item_key(item.id): fingerprint(item) for item in remember}
        keys = list(dict.fromkeys([*(key for key, _, _ in keyed), *recalled]))
        with self._catalog.read() as connection:
            known = manifest.seen_of(connection, feed, keys)
        newest = {key: (seen.version, seen.fingerprint) for key, seen in known.items()}
        fresh: list[_Fresh] = []
        for key, item, print_ in keyed:
            version, last_print = newest.get(key, (0, b""))
            if print_ != last_print:
                newest[key] = (version + 1, print_)
                fresh.append(_Fresh(key, Item(item.feed, item.id, item.attributes, version + 1), print_))
        kept = {key: print_ for key, print_ in recalled.items() if key not in newest}
        return _Sifted(tuple(fresh), kept, tuple(keys), known)

    def _write(self, path: str, feed: int, fresh: Sequence[_Fresh]) -> int:
        batch = ItemBatch.of([one.item for one in fresh], {one.item.feed: feed for one in fresh})
        stored = batch.records.select(_STORED.names).replace_schema_metadata(_STORED.metadata)
        return write_arrow(self._storage, path, [stored], stored.schema)

    def _commit(self, feed: int, path: str, size: int, sifted: _Sifted) -> Accepted | None:
        """The transaction that makes items accepted; None if the seen-set changed since it was asked."""
        with self._catalog.write() as connection:
            if manifest.seen_of(connection, feed, sifted.keys) != sifted.known:
                return None
            seen = {key: Seen(1, print_, None) for key, print_ in sifted.remember.items()}
            result = Accepted()
            if sifted.fresh:
                count = len(sifted.fresh)
                first, accepted = take_sequences(connection, count)
                result = Accepted(first, first + count - 1, count)
                sequences = (first, first + count - 1)
                manifest.add_segment(
                    connection, LOG, path, sequences=sequences, times=(accepted, accepted), size=size
                )
                for row, one in enumerate(sifted.fresh):
                    seen[one.key] = Seen(one.item.version, one.fingerprint, first + row)
            manifest.record_seen(connection, feed, seen)
        return result

    def last_sequence(self) -> int:
        """The sequence of the newest item; 0 if there is none."""
        with self._catalog.read() as connection:
            return last_sequence(connection)

    def slices(self, after: int, upto: int, *, rows: int) -> list[Slice]:
        """The items with sequences in (after, upto] as slices of at most so many rows."""
        with self._catalog.read() as connection:
            segments = manifest.segments_between(connection, after, upto)
        return [one for segment in segments for one in _slices_of(segment, after, upto, rows)]

    def read(self, after: int, upto: int) -> Iterator[ItemBatch]:
        """The items with sequences in (after, upto], in order."""
        for one in self.slices(after, upto, rows=_SEGMENT_ITEMS):
            yield read_slice(self._storage, one)

    def read_since(self, accepted: int) -> Iterator[ItemBatch]:
        """The items accepted at or after a time (microseconds since 1970), in order."""
        with self._catalog.read() as connection:
            segments = manifest.segments_since(connection, accepted)
        for segment in segments:
            for one in _slices_of(segment, 0, segment.last_sequence, _SEGMENT_ITEMS):
                batch = read_slice(self._storage, one)
                times = batch.records.column("accepted").cast(pa.int64())
                kept = batch.records.filter(pc.greater_equal(times, accepted))
                if kept.num_rows:
                    yield ItemBatch(kept)

    def get(self, sequences: Sequence[int]) -> Iterator[ItemBatch]:
        """The items of these sequences (ascending), in batches."""
        wanted = np.asarray(sequences, dtype=np.int64)
        if not len(wanted):
            return
        for one in self.slices(int(wanted[0]) - 1, int(wanted[-1]), rows=_SEGMENT_ITEMS):
            low, high = np.searchsorted(wanted, [one.first_sequence, one.last_sequence + 1])
            if low < high:
                batch = read_slice(self._storage, one)
                yield ItemBatch(batch.records.take(pa.array(wanted[low:high] - one.first_sequence)))


def _slices_of(segment: ItemSegment, after: int, upto: int, rows: int) -> Iterator[Slice]:
    start = max(segment.first_sequence, after + 1)
    end = min(segment.last_sequence, upto)
    for first in range(start, end + 1, rows):
        count = min(rows, end - first + 1)
        yield Slice(segment.tier, segment.path, first - segment.first_sequence, count, first, segment.accepted)


def read_slice(storage: Storage, one: Slice) -> ItemBatch:
    """The items of a slice, with their sequences and times."""
    if one.tier != LOG:
        table = read_parquet_rows(storage, one.path, one.first_row, one.rows)
        return ItemBatch(_single_batch(table.select(ITEM_SCHEMA.names), ITEM_SCHEMA))
    stored = _single_batch(read_arrow(storage, one.path).slice(one.first_row, one.rows), _STORED)
    sequences = pa.array(np.arange(one.first_sequence, one.first_sequence + one.rows, dtype=np.int64))
    times = pa.array(np.full(one.rows, one.accepted, dtype=np.int64)).cast(ITEM_SCHEMA.field("accepted").type)
    return ItemBatch(pa.RecordBatch.from_arrays([sequences, times, *stored.columns], schema=ITEM_SCHEMA))


def _single_batch(table: Any, schema: Any) -> Any:
    """A table's rows as one record batch."""
    batches = table.combine_chunks().cast(schema).to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)
