"""The item log: accept items and changes of tables, and read them by sequence or by time.

A segment of the tier `log` contains only the publisher's data. Sequence and time come from its manifest row, so that
the file can be written before the transaction that accepts it. Archived segments contain both as columns.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import pyarrow as pa

from runnel.catalog.declared import tables
from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs.item_segments import ItemSegment, SeenItem
from runnel.catalog.store.connection import Catalog, now
from runnel.catalog.store.sequencer import last_sequence, take_sequences
from runnel.errors import CorruptDataError
from runnel.logs.items.fingerprint import fingerprint
from runnel.logs.items.item_files import STORED_SCHEMA, read_feeds, read_items
from runnel.model.item import Item
from runnel.model.item_batch import ITEM_SCHEMA, ItemBatch
from runnel.model.segment import Slice, Tier
from runnel.model.table import RowChange
from runnel.storage.arrow_files import read_parquet_column, write_arrow
from runnel.storage.checksums import ChecksummedFile
from runnel.storage.file_storage import Storage

_T = TypeVar("_T")
_SEGMENT_ITEMS = 5_000
_SEGMENTS = 64


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of accepting items: the assigned sequences, and the number of unchanged items.

    `late` is the number of changes of a table that `ordered by` skipped.
    """

    first_sequence: int | None = None
    last_sequence: int | None = None
    accepted: int = 0
    unchanged: int = 0
    late: int = 0

    def __add__(self, other: Accepted) -> Accepted:
        firsts = [first for first in (self.first_sequence, other.first_sequence) if first is not None]
        lasts = [last for last in (self.last_sequence, other.last_sequence) if last is not None]
        return Accepted(
            min(firsts, default=None),
            max(lasts, default=None),
            self.accepted + other.accepted,
            self.unchanged + other.unchanged,
            self.late + other.late,
        )


@dataclass(frozen=True, slots=True)
class _Offer:
    """An offered item with its key and fingerprint, and for tables the fields of its RowChange."""

    key: bytes
    item: Item
    fingerprint: bytes
    position: bytes | None = None
    replaces: int | None = None

    def is_late(self, seen: SeenItem | None) -> bool:
        """Return whether a later change of the row was accepted before."""
        if seen is None or seen.position is None or self.position is None:
            return False
        return self.position < seen.position

    def is_change(self, seen: SeenItem | None) -> bool:
        """Return whether the item differs from the newest version. Deleting an unknown row changes nothing."""
        if seen is None:
            return self.fingerprint != manifest.DELETED and self.replaces is None
        return self.fingerprint != seen.fingerprint and self.replaces in (None, seen.sequence)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Offered items compared with the seen-set, and the entries of the seen-set that were used.

    `shown` are keys of items that the source showed again, for the first time today. `late` and `rows` are the number
    of late changes of a table, and by how many its rows grow.
    """

    fresh: tuple[_Offer, ...]
    remember: dict[bytes, bytes]
    keys: tuple[bytes, ...]
    known: dict[bytes, SeenItem]
    shown: tuple[bytes, ...]
    late: int = 0
    rows: int = 0


def item_key(item_id: str) -> bytes:
    """Return the seen-set's key of an item id. It has a fixed size, however long the id is."""
    return blake2b(item_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class ItemLog:
    """The item log of a workspace."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage

    def accept(self, feed: int, items: Sequence[Item], *, remember: Sequence[Item] = ()) -> Accepted:
        """Accept items of a source feed, in order. Skip unchanged items, and give edited items a new version.

        Items to `remember` are only added to the seen-set, so they are not accepted when they arrive again.
        """
        offers = [_Offer(item_key(item.id), item, fingerprint(item)) for item in items]
        return self._accept_chunks(feed, offers, remember)

    def change_rows(self, table: int, changes: Sequence[RowChange]) -> Accepted:
        """Accept changes of a table's rows, in order.

        Skip unchanged rows, deletions of unknown rows, and late changes.
        """
        offers = [
            _Offer(
                item_key(change.item.id),
                change.item,
                manifest.DELETED if change.is_deletion else fingerprint(change.item),
                change.position,
                change.replaces,
            )
            for change in changes
        ]
        return self._accept_chunks(table, offers, is_table=True)

    def _accept_chunks(
        self, feed: int, offers: Sequence[_Offer], remember: Sequence[Item] = (), *, is_table: bool = False
    ) -> Accepted:
        result = Accepted()
        for start in range(0, max(len(offers), 1), _SEGMENT_ITEMS):
            chunk = offers[start : start + _SEGMENT_ITEMS]
            result += self._accept(feed, chunk, remember if start == 0 else (), is_table)
        return result

    def _accept(self, feed: int, offers: Sequence[_Offer], remember: Sequence[Item], is_table: bool) -> Accepted:
        while True:
            comparison = self._compare(feed, offers, remember)
            if not comparison.fresh and not comparison.remember and not comparison.late:
                self._touch(feed, comparison.shown)
                return Accepted(unchanged=len(offers))
            file = self._write(feed, comparison.fresh) if comparison.fresh else None
            done = self._commit(feed, file, comparison, is_table)
            if done is not None:
                return replace(done, unchanged=len(offers) - done.accepted - done.late)
            # The seen-set changed, for example because another publisher accepted one of the items. Try again.
            if file is not None:
                self._storage.delete(file.path)

    def _compare(self, feed: int, offers: Sequence[_Offer], remember: Sequence[Item]) -> _Comparison:
        """Determine which items are new or edited according to the current seen-set."""
        recalled = {item_key(item.id): fingerprint(item) for item in remember}
        keys = list(dict.fromkeys([*(offer.key for offer in offers), *recalled]))
        with self._catalog.read() as connection:
            known = manifest.seen_of(connection, feed, keys)
            today = now(connection) // manifest.DAY
        newest = dict(known)
        fresh: list[_Offer] = []
        late = rows = 0
        for offer in offers:
            seen = newest.get(offer.key)
            if offer.is_late(seen):
                late += 1
            elif offer.is_change(seen):
                version = 1 if seen is None else seen.version + 1
                position = offer.position if seen is None or offer.position is not None else seen.position
                newest[offer.key] = SeenItem(version, offer.fingerprint, None, position=position)
                item = Item(offer.item.feed, offer.item.id, offer.item.attributes, version)
                fresh.append(replace(offer, item=item, position=position))
                rows += _is_live(newest[offer.key]) - _is_live(seen)
        to_remember = {key: print_ for key, print_ in recalled.items() if key not in newest}
        shown = tuple(key for key, seen in known.items() if seen.day < today)
        return _Comparison(tuple(fresh), to_remember, tuple(keys), known, shown, late, rows)

    def _touch(self, feed: int, shown: Sequence[bytes]) -> None:
        """Record, once a day, that a source still shows known items, so that the seen-set keeps them."""
        if shown:
            with self._catalog.write() as connection:
                manifest.touch_seen(connection, feed, shown)

    def _write(self, feed: int, fresh: Sequence[_Offer]) -> ChecksummedFile:
        batch = ItemBatch.of([entry.item for entry in fresh], {entry.item.feed: feed for entry in fresh})
        stored = batch.records.select(STORED_SCHEMA.names).replace_schema_metadata(STORED_SCHEMA.metadata)
        return write_arrow(self._storage, f"items/log/{uuid.uuid4().hex}.arrow", [stored], stored.schema)

    def _commit(
        self, feed: int, file: ChecksummedFile | None, comparison: _Comparison, is_table: bool
    ) -> Accepted | None:
        """Accept the items in a transaction. Return None if the seen-set changed since the comparison."""
        with self._catalog.write() as connection:
            if manifest.seen_of(connection, feed, comparison.keys) != comparison.known:
                return None
            if file is not None and not self._storage.local(file.path).exists():
                return None  # writing took so long that the file was removed as an orphan
            seen = {key: SeenItem(1, print_, None) for key, print_ in comparison.remember.items()}
            result = Accepted(late=comparison.late)
            if file is not None:
                count = len(comparison.fresh)
                first, accepted = take_sequences(connection, count)
                result = Accepted(first, first + count - 1, count, late=comparison.late)
                sequences = (first, first + count - 1)
                manifest.add_segment(
                    connection, Tier.LOG, file.path, sequences=sequences, times=(accepted, accepted), size=file.size
                )
                for row, entry in enumerate(comparison.fresh):
                    version = entry.item.version
                    seen[entry.key] = SeenItem(version, entry.fingerprint, first + row, position=entry.position)
            manifest.record_seen(connection, feed, seen)
            manifest.touch_seen(connection, feed, [key for key in comparison.shown if key not in seen])
            if is_table:
                tables.note_changes(
                    connection,
                    feed,
                    last_change=result.last_sequence,
                    changes=result.accepted,
                    rows=comparison.rows,
                    late=result.late,
                )
        return result

    def last_sequence(self) -> int:
        """Return the sequence of the newest item, or 0 if there is none."""
        with self._catalog.read() as connection:
            return last_sequence(connection)

    def slices(self, after: int, upto: int, *, rows: int) -> list[Slice]:
        """Return the items with sequences in (after, upto] as slices of at most `rows` rows."""
        with self._catalog.read() as connection:
            segments = manifest.segments_between(connection, manifest.kept_after(connection, after), upto)
        return [item_slice for segment in segments for item_slice in _slices_of(segment, after, upto, rows)]

    def read(self, after: int, upto: int) -> Iterator[ItemBatch]:
        """Read the items with sequences in (after, upto], in order. Raise NotFoundError if they were deleted.

        Segments are merged concurrently. If a file is gone, the reader reads the manifest again.
        """
        return self._each(after, upto, read_items)

    def read_feed(self, feed: int, after: int, upto: int) -> Iterator[ItemBatch]:
        """Read the items of one source feed with sequences in (after, upto] that are still kept, in order."""
        with self._catalog.read() as connection:
            after = max(after, manifest.retained_upto(connection))

        def read_own(storage: Storage, item_slice: Slice) -> ItemBatch:
            rows = np.flatnonzero(read_feeds(storage, item_slice) == feed)
            if not len(rows):
                return ItemBatch(pa.RecordBatch.from_pylist([], schema=ITEM_SCHEMA))
            batch = read_items(storage, item_slice)
            return batch if len(rows) == len(batch) else ItemBatch(batch.records.take(pa.array(rows)))

        return (batch for batch in self._each(after, upto, read_own) if len(batch))

    def count(self, feeds: Collection[int], after: int, upto: int) -> int:
        """Count the items with sequences in (after, upto] from these source feeds."""
        feed_ids = np.fromiter(feeds, dtype=np.int64, count=len(feeds))
        return sum(int(np.isin(of, feed_ids).sum()) for of in self._each(after, upto, read_feeds))

    def _each(self, after: int, upto: int, read_slice: Callable[[Storage, Slice], _T]) -> Iterator[_T]:
        """Yield the result of `read_slice` for each slice of (after, upto], in order."""
        position = after
        while position < upto:
            with self._catalog.read() as connection:
                position = max(position, manifest.kept_after(connection, after and position))
                segments = manifest.segments_between(connection, position, upto, limit=_SEGMENTS)
            if not segments:
                return
            slices = [
                item_slice
                for segment in segments
                for item_slice in _slices_of(segment, position, upto, _SEGMENT_ITEMS)
            ]
            for item_slice in slices:
                result = self._read_live(item_slice, read_slice)
                if result is None:
                    break
                yield result
                position = item_slice.last_sequence

    def _read_live(self, item_slice: Slice, read_slice: Callable[[Storage, Slice], _T]) -> _T | None:
        """Read a slice. Return None if its file is no longer part of the log."""
        try:
            return read_slice(self._storage, item_slice)
        except CorruptDataError:
            with self._catalog.read() as connection:
                if manifest.is_live(connection, item_slice.path):
                    raise
            return None

    def sequence_before(self, accepted: int) -> int:
        """Return the last sequence accepted before a time in microseconds since 1970, or 0 if there is none."""
        while True:
            with self._catalog.read() as connection:
                last, spanning = manifest.segments_before(connection, accepted)
            # All items of a fresh segment have the same time, so only an archived segment can span the given time.
            if not spanning or spanning[0].tier == Tier.LOST:
                return last
            try:
                times = read_parquet_column(self._storage, spanning[0].path, "accepted").cast(pa.int64()).to_numpy()
            except CorruptDataError:
                with self._catalog.read() as connection:
                    if manifest.is_live(connection, spanning[0].path):
                        raise
                continue
            return max(last, spanning[0].first_sequence - 1 + int(np.searchsorted(times, accepted)))

    def get(self, sequences: Sequence[int]) -> Iterator[ItemBatch]:
        """Read the items of these ascending sequences, in batches. Raise NotFoundError if one of them was deleted."""
        remaining = np.asarray(sequences, dtype=np.int64)
        while len(remaining):
            with self._catalog.read() as connection:
                manifest.check_kept(connection, int(remaining[0]))
                segments = manifest.segments_between(
                    connection, int(remaining[0]) - 1, int(remaining[-1]), limit=_SEGMENTS
                )
            if not segments:
                return
            read_upto = segments[-1].last_sequence
            for item_slice in (
                item_slice for segment in segments for item_slice in _slices_of(segment, 0, read_upto, _SEGMENT_ITEMS)
            ):
                low, high = np.searchsorted(remaining, [item_slice.first_sequence, item_slice.last_sequence + 1])
                if low == high or item_slice.tier == Tier.LOST:
                    continue
                batch = self._read_live(item_slice, read_items)
                if batch is None:
                    read_upto = item_slice.first_sequence - 1
                    break
                yield ItemBatch(batch.records.take(pa.array(remaining[low:high] - item_slice.first_sequence)))
            remaining = remaining[np.searchsorted(remaining, read_upto + 1) :]


def _is_live(seen: SeenItem | None) -> bool:
    """Return whether a row exists in the version that was seen last."""
    return seen is not None and seen.fingerprint != manifest.DELETED


def _slices_of(segment: ItemSegment, after: int, upto: int, rows: int) -> Iterator[Slice]:
    start = max(segment.first_sequence, after + 1)
    end = min(segment.last_sequence, upto)
    for first in range(start, end + 1, rows):
        count = min(rows, end - first + 1)
        yield Slice(segment.tier, segment.path, first - segment.first_sequence, count, first, segment.accepted)
