"""The item log: accepting items, and reading them again by sequence or by time.

A segment of the tier `log` holds only what the publisher gave; sequence and time come from its manifest row, so that
the file can be written before the transaction that accepts it. Archived segments hold both as columns.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import pyarrow as pa

from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs.item_segments import ItemSegment, SeenItem
from runnel.catalog.store.connection import Catalog, now
from runnel.catalog.store.sequencer import last_sequence, take_sequences
from runnel.errors import CorruptDataError
from runnel.logs.items.fingerprint import fingerprint
from runnel.logs.items.item_files import STORED_SCHEMA, read_feeds, read_items
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.segment import Slice, Tier
from runnel.storage.arrow_files import read_parquet_column, write_arrow
from runnel.storage.checksums import SealedFile
from runnel.storage.file_storage import Storage

_T = TypeVar("_T")
_SEGMENT_ITEMS = 5_000
_SEGMENTS = 64


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
class _Fresh:
    """An item to accept, with its key and fingerprint."""

    key: bytes
    item: Item
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class _Sifted:
    """Offered items held against the seen-set, and what that said: the basis on which they may be accepted.

    `shown` are keys of items that the source showed again, for the first time today.
    """

    fresh: tuple[_Fresh, ...]
    remember: dict[bytes, bytes]
    keys: tuple[bytes, ...]
    known: dict[bytes, SeenItem]
    shown: tuple[bytes, ...]


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
                self._touch(feed, sifted.shown)
                return Accepted(unchanged=len(items))
            file = self._write(feed, sifted.fresh) if sifted.fresh else None
            done = self._commit(feed, file, sifted)
            if done is not None:
                return replace(done, unchanged=len(items) - done.accepted)
            # Another publisher accepted one of these ids since we looked, say: look again, with a new file.
            if file is not None:
                self._storage.delete(file.path)

    def _sift(self, feed: int, items: Sequence[Item], remember: Sequence[Item]) -> _Sifted:
        """Which of the items are new or edited, as far as the seen-set tells now."""
        keyed = [(item_key(item.id), item, fingerprint(item)) for item in items]
        recalled = {item_key(item.id): fingerprint(item) for item in remember}
        keys = list(dict.fromkeys([*(key for key, _, _ in keyed), *recalled]))
        with self._catalog.read() as connection:
            known = manifest.seen_of(connection, feed, keys)
            today = now(connection) // manifest.DAY
        newest = {key: (seen.version, seen.fingerprint) for key, seen in known.items()}
        fresh: list[_Fresh] = []
        for key, item, print_ in keyed:
            version, last_print = newest.get(key, (0, b""))
            if print_ != last_print:
                newest[key] = (version + 1, print_)
                fresh.append(_Fresh(key, Item(item.feed, item.id, item.attributes, version + 1), print_))
        kept = {key: print_ for key, print_ in recalled.items() if key not in newest}
        shown = tuple(key for key, seen in known.items() if seen.day < today)
        return _Sifted(tuple(fresh), kept, tuple(keys), known, shown)

    def _touch(self, feed: int, shown: Sequence[bytes]) -> None:
        """Note that a source still shows what it showed before: once a day, so that it is not forgotten."""
        if shown:
            with self._catalog.write() as connection:
                manifest.touch_seen(connection, feed, shown)

    def _write(self, feed: int, fresh: Sequence[_Fresh]) -> SealedFile:
        batch = ItemBatch.of([one.item for one in fresh], {one.item.feed: feed for one in fresh})
        stored = batch.records.select(STORED_SCHEMA.names).replace_schema_metadata(STORED_SCHEMA.metadata)
        return write_arrow(self._storage, f"items/log/{uuid.uuid4().hex}.arrow", [stored], stored.schema)

    def _commit(self, feed: int, file: SealedFile | None, sifted: _Sifted) -> Accepted | None:
        """The transaction that makes items accepted; None if the seen-set changed since it was asked."""
        with self._catalog.write() as connection:
            if manifest.seen_of(connection, feed, sifted.keys) != sifted.known:
                return None
            if file is not None and not self._storage.local(file.path).exists():
                return None  # so much time has passed that it was taken for an orphan
            seen = {key: SeenItem(1, print_, None) for key, print_ in sifted.remember.items()}
            result = Accepted()
            if file is not None:
                count = len(sifted.fresh)
                first, accepted = take_sequences(connection, count)
                result = Accepted(first, first + count - 1, count)
                sequences = (first, first + count - 1)
                manifest.add_segment(
                    connection, Tier.LOG, file.path, sequences=sequences, times=(accepted, accepted), size=file.size
                )
                for row, one in enumerate(sifted.fresh):
                    seen[one.key] = SeenItem(one.item.version, one.fingerprint, first + row)
            manifest.record_seen(connection, feed, seen)
            manifest.touch_seen(connection, feed, [key for key in sifted.shown if key not in seen])
        return result

    def last_sequence(self) -> int:
        """The sequence of the newest item; 0 if there is none."""
        with self._catalog.read() as connection:
            return last_sequence(connection)

    def slices(self, after: int, upto: int, *, rows: int) -> list[Slice]:
        """The items with sequences in (after, upto] as slices of at most so many rows."""
        with self._catalog.read() as connection:
            segments = manifest.segments_between(connection, manifest.kept_after(connection, after), upto)
        return [one for segment in segments for one in _slices_of(segment, after, upto, rows)]

    def read(self, after: int, upto: int) -> Iterator[ItemBatch]:
        """The items with sequences in (after, upto], in order; NotFound if they are no longer kept.

        Segments are merged while others read: a reader that finds a file gone looks at the manifest again.
        """
        return self._each(after, upto, read_items)

    def count(self, feeds: Collection[int], after: int, upto: int) -> int:
        """How many of the items with sequences in (after, upto] came from these source feeds."""
        wanted = np.fromiter(feeds, dtype=np.int64, count=len(feeds))
        return sum(int(np.isin(of, wanted).sum()) for of in self._each(after, upto, read_feeds))

    def _each(self, after: int, upto: int, read_one: Callable[[Storage, Slice], _T]) -> Iterator[_T]:
        """What is read of each slice of (after, upto], in order."""
        position = after
        while position < upto:
            with self._catalog.read() as connection:
                position = max(position, manifest.kept_after(connection, after and position))
                segments = manifest.segments_between(connection, position, upto, limit=_SEGMENTS)
            if not segments:
                return
            slices = [one for segment in segments for one in _slices_of(segment, position, upto, _SEGMENT_ITEMS)]
            for one in slices:
                found = self._read_live(one, read_one)
                if found is None:
                    break
                yield found
                position = one.last_sequence

    def _read_live(self, one: Slice, read_one: Callable[[Storage, Slice], _T]) -> _T | None:
        """What is read of a slice; None if its file is part of the log no more."""
        try:
            return read_one(self._storage, one)
        except CorruptDataError:
            with self._catalog.read() as connection:
                if manifest.is_live(connection, one.path):
                    raise
            return None

    def sequence_before(self, accepted: int) -> int:
        """The last sequence accepted before a time (microseconds since 1970); 0 if there is none."""
        while True:
            with self._catalog.read() as connection:
                last, across = manifest.segments_before(connection, accepted)
            # A fresh segment was accepted at one moment, so only an archived one can go across another.
            if not across or across[0].tier == Tier.LOST:
                return last
            try:
                times = read_parquet_column(self._storage, across[0].path, "accepted").cast(pa.int64()).to_numpy()
            except CorruptDataError:
                with self._catalog.read() as connection:
                    if manifest.is_live(connection, across[0].path):
                        raise
                continue
            return max(last, across[0].first_sequence - 1 + int(np.searchsorted(times, accepted)))

    def get(self, sequences: Sequence[int]) -> Iterator[ItemBatch]:
        """The items of these sequences (ascending), in batches; NotFound if one of them is no longer kept."""
        wanted = np.asarray(sequences, dtype=np.int64)
        while len(wanted):
            with self._catalog.read() as connection:
                manifest.check_kept(connection, int(wanted[0]))
                segments = manifest.segments_between(connection, int(wanted[0]) - 1, int(wanted[-1]), limit=_SEGMENTS)
            if not segments:
                return
            reached = segments[-1].last_sequence
            for one in (one for segment in segments for one in _slices_of(segment, 0, reached, _SEGMENT_ITEMS)):
                low, high = np.searchsorted(wanted, [one.first_sequence, one.last_sequence + 1])
                if low == high or one.tier == Tier.LOST:
                    continue
                batch = self._read_live(one, read_items)
                if batch is None:
                    reached = one.first_sequence - 1
                    break
                yield ItemBatch(batch.records.take(pa.array(wanted[low:high] - one.first_sequence)))
            wanted = wanted[np.searchsorted(wanted, reached + 1) :]


def _slices_of(segment: ItemSegment, after: int, upto: int, rows: int) -> Iterator[Slice]:
    start = max(segment.first_sequence, after + 1)
    end = min(segment.last_sequence, upto)
    for first in range(start, end + 1, rows):
        count = min(rows, end - first + 1)
        yield Slice(segment.tier, segment.path, first - segment.first_sequence, count, first, segment.accepted)
