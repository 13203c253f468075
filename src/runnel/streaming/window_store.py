"""The items of windows as files: written with the commit of a batch, and merged by the runner.

In: items that reached windows, with their indexes. Out: immutable files, which the catalog lists. A file holds items
of all windows. Readers map it into memory.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from runnel.catalog.logs import gate_states, item_segments, windows
from runnel.catalog.logs.windows import FilledWindow, WindowSegment
from runnel.catalog.store import leases
from runnel.errors import CorruptDataError
from runnel.matching.joins.window_items import WindowItems, merge_window_items
from runnel.storage.arrow_files import read_arrow, write_arrow
from runnel.storage.file_storage import Storage

if TYPE_CHECKING:
    from runnel.catalog.store.connection import Catalog

logger = logging.getLogger("runnel")

FOLDER = "windows"
_DAMAGED = "a file of windows cannot be read, so all windows are filled again: %s"
_FAN_IN = 8
"""Number of files of a level that are merged into one of the next level."""

_LARGE = 4_000_000
"""A file with at least this many items is not merged with others."""

_LARGE_BYTES = 400 << 20
"""Nor is a file of at least this size, because positions in the texts of a file have 32 bits."""

_MAX_MERGED_BYTES = 3 << 30
"""The size of the files that are merged at once."""

_NEVER = 1 << 62
"""A sequence after all others."""


def new_key() -> int:
    """Return a key under which to store the items of a window that is filled. No other window has it."""
    return uuid.uuid4().int >> 65


def write_segment(storage: Storage, items: WindowItems, level: int = 0) -> WindowSegment:
    """Write items under a name that no other file has. It takes effect when the catalog lists it."""
    first, last = int(items.sequences[0]), int(items.sequences[-1])
    path = f"{FOLDER}/{first:020d}-{uuid.uuid4().hex}.arrow"
    records = items.to_records()
    file = write_arrow(storage, path, [records], records.schema)
    return WindowSegment(file.path, first, last, int(items.accepted.max()), len(items), file.size, level)


def read_segment(storage: Storage, path: str) -> WindowItems:
    """Map a file into memory. Raise CorruptDataError if it is damaged or missing."""
    return WindowItems.from_table(read_arrow(storage, path))


def merge_steps(catalog: Catalog, storage: Storage, *, epoch: int) -> Iterator[int]:
    """Merge files of the same level, without items that no window needs. Yield the number of files of each step."""
    with catalog.write() as connection:
        leases.check(connection, epoch)
        windows.forget_windows(connection)
    while True:
        with catalog.read() as connection:
            segments = windows.live_segments(connection)
            filled = list(windows.filled_windows(connection).values())
            newest = gate_states.matched_time(connection)
            kept_after = item_segments.retained_upto(connection)
        try:
            need = _Need(storage, segments, filled, newest, kept_after)
            chosen = _choose(need)
            if not chosen:
                return
            merged = _merge(chosen, need)
        except CorruptDataError as error:
            logger.warning(_DAMAGED, error)
            merged = None
        with catalog.write() as connection:
            leases.check(connection, epoch)
            if windows.live_segments(connection) != segments:
                return  # a batch was committed in the meantime; the next call continues
            if merged is None:
                windows.empty_windows(connection)
                return
            windows.retire_segments(connection, [segment.path for segment in chosen])
            windows.add_segments(connection, merged)
        yield len(chosen)


@dataclass(frozen=True)
class _Need:
    """The items of files that windows need, as of a time such that no item waits that was accepted before it.

    No window needs the items up to the sequence `kept_after`, which are no longer in the item log.
    """

    storage: Storage
    segments: Sequence[WindowSegment]
    filled: Sequence[FilledWindow]
    newest: int
    kept_after: int

    def is_young(self, segment: WindowSegment) -> bool:
        """Return whether a file may have an item that is young enough for some window."""
        longest = max((window.microseconds for window in self.filled), default=0)
        return segment.last_accepted > self.newest - longest

    def is_expired(self, segment: WindowSegment) -> bool:
        """Return whether no window needs any item of a file."""
        if segment.last_sequence <= self.kept_after:
            return True
        return not self.is_young(segment) and segment.last_sequence < min(
            self.first_sequences.values(), default=_NEVER
        )

    def is_sparse(self, segment: WindowSegment) -> bool:
        """Return whether a file has items that are no longer in the item log, or is old and mostly unneeded."""
        if segment.first_sequence <= self.kept_after:
            return True
        if self.is_young(segment):
            return False
        needed = int(np.count_nonzero(self.mask(read_segment(self.storage, segment.path))))
        return 2 * needed < segment.items

    def mask(self, items: WindowItems) -> npt.NDArray[np.bool_]:
        """Return which items some window needs."""
        needed = np.zeros(len(items), dtype=np.bool_)
        for window in self.filled:
            rows = items.members_of(window.key)
            is_recent = items.accepted[rows] > self.newest - window.microseconds
            is_counted = items.sequences[rows] >= self.first_sequences.get(window.key, _NEVER)
            needed[rows[is_recent | is_counted]] = True
        return needed & (items.sequences > self.kept_after)

    @cached_property
    def first_sequences(self) -> dict[int, int]:
        """The sequence of the oldest item that each window of a number of items needs, by the key of the window."""
        counting = {window.key: window.items for window in self.filled if window.items}
        if not counting:
            return {}
        parts = [read_segment(self.storage, segment.path) for segment in self.segments]
        first: dict[int, int] = {}
        for key, count in counting.items():
            members = [part.sequences[part.members_of(key)] for part in parts]
            sequences = np.unique(np.concatenate(members)) if members else np.empty(0, dtype=np.int64)
            first[key] = int(sequences[-count]) if len(sequences) >= count else 0
        return first


def _choose(need: _Need) -> list[WindowSegment]:
    """Return the files to merge next: all that no window needs, or one that is mostly unneeded, or else many of the
    same level.
    """
    expired = [segment for segment in need.segments if need.is_expired(segment)]
    if expired:
        return expired
    sparse = next(filter(need.is_sparse, need.segments), None)
    if sparse is not None:
        return [sparse]
    small = [segment for segment in need.segments if segment.items < _LARGE and segment.bytes < _LARGE_BYTES]
    for level in sorted({segment.level for segment in small}):
        of_level = [segment for segment in small if segment.level == level]
        if len(of_level) >= _FAN_IN:
            # Positions in the texts of a file have 32 bits.
            fits = np.cumsum([segment.bytes for segment in of_level]) <= _MAX_MERGED_BYTES
            return of_level[: max(2, int(fits.sum()))]
    return []


def _merge(chosen: Sequence[WindowSegment], need: _Need) -> list[WindowSegment]:
    """Merge files into one, or none if no window needs their items."""
    if all(map(need.is_expired, chosen)):
        return []
    merged = merge_window_items([read_segment(need.storage, segment.path) for segment in chosen], need.mask)
    level = max(segment.level for segment in chosen) + (len(chosen) > 1)
    return [write_segment(need.storage, merged, level)] if len(merged) else []
