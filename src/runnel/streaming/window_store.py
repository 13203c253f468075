"""The items of windows as files: written with the commit of a batch, and merged by the runner.

In: items that reached windows, with their indexes. Out: immutable files, which the catalog lists. A file holds items
of all windows. Readers map it into memory.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from runnel.catalog.logs import gate_states, windows
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


def window_key(history: bytes) -> int:
    """Return the key under which the items of a window are stored. It changes with the definition of its feed."""
    return int.from_bytes(history[:8]) >> 1


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
        chosen = _choose(segments, filled, newest)
        if not chosen:
            return
        try:
            merged = _merge(storage, chosen, segments, filled, newest)
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


def _choose(segments: Sequence[WindowSegment], filled: Sequence[FilledWindow], newest: int) -> list[WindowSegment]:
    """Return the files to merge next: all that are too old for every window, or else many of the same level."""
    longest = max((window.microseconds for window in filled), default=0)
    if not any(window.items for window in filled):
        expired = [segment for segment in segments if segment.last_accepted <= newest - longest]
        if expired:
            return expired
    small = [segment for segment in segments if segment.items < _LARGE and segment.bytes < _LARGE_BYTES]
    for level in sorted({segment.level for segment in small}):
        of_level = [segment for segment in small if segment.level == level]
        if len(of_level) >= _FAN_IN:
            return of_level
    return []


def _merge(
    storage: Storage,
    chosen: Sequence[WindowSegment],
    segments: Sequence[WindowSegment],
    filled: Sequence[FilledWindow],
    newest: int,
) -> list[WindowSegment]:
    """Merge files into one, or none if no window needs their items."""
    counting = {window_key(window.history): window.items for window in filled if window.items}
    first_needed = _first_needed(storage, segments, counting) if counting else {}

    def is_needed(items: WindowItems) -> npt.NDArray[np.bool_]:
        needed = np.zeros(len(items), dtype=np.bool_)
        for window in filled:
            key = window_key(window.history)
            rows = items.members_of(key)
            recent = items.accepted[rows] > newest - window.microseconds
            needed[rows[recent | (items.sequences[rows] >= first_needed.get(key, np.iinfo(np.int64).max))]] = True
        return needed

    parts = [read_segment(storage, segment.path) for segment in chosen]
    merged = merge_window_items(parts, is_needed)
    level = 1 + max(segment.level for segment in chosen)
    return [write_segment(storage, merged, level)] if len(merged) else []


def _first_needed(storage: Storage, segments: Sequence[WindowSegment], counting: dict[int, int]) -> dict[int, int]:
    """Return the sequence of the oldest item that each counting window needs, by key."""
    parts = [read_segment(storage, segment.path) for segment in segments]
    first: dict[int, int] = {}
    for key, count in counting.items():
        members = np.unique(np.concatenate([part.sequences[part.members_of(key)] for part in parts]))
        first[key] = int(members[-count]) if len(members) >= count else 0
    return first
