"""Fill the windows of joins with items from before they were needed, at the commit of a batch.

In: the gates of a batch, and the item log before it. Out: the items of all windows that its joins read, and the
changes to store in the transaction that commits the batch. A window is filled once, by matching the definition of its
feed with past items, and again if a join needs a longer window or a file is damaged. The result depends only on the
item log, so a batch that is repeated after a crash gets the same windows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from runnel.algebra.nodes.query import Gated, Node
from runnel.catalog.declared import feeds
from runnel.catalog.delivery.outbox import names_of
from runnel.catalog.logs import item_segments, windows
from runnel.catalog.logs.windows import FilledWindow, WindowSegment
from runnel.catalog.store.connection import Catalog
from runnel.errors import CorruptDataError, RunnelError
from runnel.gc_paused import gc_paused
from runnel.logs.items.item_log import ItemLog
from runnel.matching.gates.claims import Claims
from runnel.matching.gates.gate_columns import GateColumns
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.matching.gates.resolve_gates import ResolvedGates
from runnel.matching.joins.window_items import WindowItems, merge_window_items
from runnel.plan.gates import NO_GATE, Gate
from runnel.storage.file_storage import Storage
from runnel.streaming.window_store import new_key, read_segment, write_segment
from runnel.streaming.worker.progress_mark import report_work

_MICROSECOND = timedelta(microseconds=1)
_REPORT_SECONDS = 5.0


@dataclass
class BatchWindows:
    """The windows of a batch: the items before it in `parts`, and the changes to store with the batch.

    `keys` has the keys of these windows, by feed. `filled` are the windows that are filled after this batch, by feed,
    and `changes` counts the changes of windows when they were read (see `count_changes`). `is_emptied` means that
    stored files are damaged, so that all windows are filled again. Items up to `kept_after` are not in the item log.
    """

    storage: Storage
    changes: int
    kept_after: int
    keys: dict[int, int] = field(default_factory=dict)
    parts: list[WindowItems] = field(default_factory=list)
    filled: dict[int, FilledWindow] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    segments: list[WindowSegment] = field(default_factory=list)
    is_emptied: bool = False

    def add_batch(self, gates: ResolvedGates) -> None:
        """Write the items of the batch that are in filled windows. Filling another window finds its items later."""
        added = gates.new_window_items()
        if added is None:
            return
        needed = np.zeros(len(added), dtype=np.bool_)
        for window in self.filled.values():
            needed[added.members_of(window.key)] = True
        if needed.any():
            kept = added if needed.all() else merge_window_items([added], lambda items: needed)
            self.segments.append(write_segment(self.storage, kept))

    def store(self, connection: Connection) -> None:
        """Store the changes, in the transaction that commits the batch.

        Raise RunnelError if items were deleted that the windows had.
        """
        if self.parts and item_segments.retained_upto(connection) != self.kept_after:
            raise RunnelError(
                "items of windows were deleted from the item log while a batch was matched with them",
                hint="no action needed: the batch is matched again",
            )
        if self.is_emptied:
            windows.empty_windows(connection)
        since = feeds.since_of(connection, self.changed)
        if windows.count_changes(connection) == self.changes:
            windows.store_windows(
                connection,
                (self.filled[feed] for feed in sorted(self.changed) if since.get(feed) == self.filled[feed].since),
            )
        windows.add_segments(connection, self.segments)


def open_windows(
    catalog: Catalog, storage: Storage, claims: Claims, plan: int, sequences: tuple[int, int]
) -> BatchWindows:
    """Read the windows that the joins of a batch need, and fill those that are not filled far enough.

    `plan` is the plan version of the batch, and `sequences` are its first and last sequence.
    """
    gates = _window_gates(claims.gates)
    with catalog.read() as connection:
        kept_after = item_segments.retained_upto(connection)
        opened = BatchWindows(storage, windows.count_changes(connection), kept_after)
        filled = windows.filled_windows(connection)
        segments = windows.live_segments(connection)
        since = feeds.since_of(connection, gates)
    opened.filled = {
        feed: window for feed, window in filled.items() if feed in gates and window.history == gates[feed].history
    }
    needed = _needed_windows(claims, gates)
    if needed:
        try:
            opened.parts = list(_read_segments(storage, segments, kept_after))
        except CorruptDataError as error:
            reason = f"a file of windows cannot be read, so all windows are filled again: {error}"
            report_work(storage, reason, logging.WARNING)
            opened.filled, opened.is_emptied = {}, True
    opened.keys = {feed: window.key for feed, window in opened.filled.items()}
    for feed, window in needed.items():
        known = opened.filled.get(feed)
        if known is not None and known.microseconds >= window.microseconds and known.items >= window.items:
            continue
        if known is not None:
            longest = max(known.microseconds, window.microseconds), max(known.items, window.items)
            window = replace(window, microseconds=longest[0], items=longest[1])
        opened.keys[feed] = window.key
        items = _fill(catalog, storage, gates[feed], window, plan, sequences[0])
        if items is not None:
            opened.parts.append(items)
        # Until the batches of earlier plans are committed, a batch may be missing in the window.
        if feed in since and since[feed] < sequences[1]:
            opened.filled[feed] = replace(window, since=since[feed])
            opened.changed.add(feed)
            if items is not None:
                opened.segments.append(write_segment(storage, items))
    return opened


def _window_gates(gates: GateColumns) -> dict[int, Gate]:
    """Return the gates of windows, by feed."""
    stores_items = np.array([rule.stores_items for rule in gates.rules], dtype=np.bool_)[gates.rule_numbers]
    return {gate.feed: gate for gate in map(gates.gate, np.flatnonzero(stores_items).tolist())}


def _read_segments(storage: Storage, segments: Sequence[WindowSegment], kept_after: int) -> Iterator[WindowItems]:
    """Yield the items in files that are still in the item log: those after a sequence."""
    for segment in segments:
        if segment.last_sequence > kept_after:
            items = read_segment(storage, segment.path)
            if segment.first_sequence <= kept_after:
                items = merge_window_items([items], lambda own: own.sequences > kept_after)
            yield items


def _needed_windows(claims: Claims, gates: Mapping[int, Gate]) -> dict[int, FilledWindow]:
    """Return how far back the joins that the claims reach need each window, by its feed."""
    columns = claims.gates
    reached = np.unique(claims.route_gates[0][np.unique(claims.route_numbers)])
    joins = reached[(reached >= 0) & (columns.windows[reached] != NO_GATE)]
    feeds, positions = np.unique(columns.windows[joins], return_inverse=True)
    items, microseconds = np.zeros(len(feeds), dtype=np.int64), np.zeros(len(feeds), dtype=np.int64)
    # The number of a join is its extent: items, or microseconds as a negative number.
    np.maximum.at(items, positions.reshape(-1), columns.numbers[joins])
    np.maximum.at(microseconds, positions.reshape(-1), -columns.numbers[joins])
    return {
        feed: FilledWindow(feed, new_key(), gates[feed].history, 0, length, count)
        for feed, length, count in zip(feeds.tolist(), microseconds.tolist(), items.tolist(), strict=True)
    }


def _fill(
    catalog: Catalog, storage: Storage, gate: Gate, window: FilledWindow, plan: int, before: int
) -> WindowItems | None:
    """Return the items before a sequence that are in a window. Return None if there are none."""
    from runnel.streaming.past_matcher import open_past_matcher

    log = ItemLog(catalog, storage)
    with catalog.read() as connection:
        definitions = feeds.definitions_at(connection, gate.feed, plan)
        kept_after = item_segments.retained_upto(connection)
        readers = sorted(names_of(connection, feeds.visible_readers(connection, [gate.feed])).values())
    after = kept_after
    if not window.items:
        after = max(after, _sequence_before(log, before, window.microseconds))
    start = after
    lookback = _lookback(definitions)
    if lookback:
        start = max(kept_after, _sequence_before(log, after + 1, lookback // _MICROSECOND))
    if start >= before - 1:
        return None
    past = start, before - 1
    progress = _FillProgress(storage, readers, *past)
    with gc_paused(), open_past_matcher(catalog, storage, gate.feed, definitions, past) as matching:
        matcher = OrderedMatcher(matching.plan, matching, {gate.feed: window.key})
        for batch in log.read(*past):
            matcher.match(batch)
            progress.note(int(batch.sequences[-1]))
    progress.end()
    return _only(matcher.windows, window.key, after)


class _FillProgress:
    """Reports how far a window is filled: when it begins, every few seconds, and at the end."""

    def __init__(self, storage: Storage, readers: Sequence[str], after: int, upto: int) -> None:
        self._storage = storage
        self._after, self._upto = after, upto
        self._started = self._reported = time.monotonic()
        others = f" and {len(readers) - 1:,} more" if len(readers) > 1 else ""
        self._window = f"the window of {readers[0]}{others}" if readers else "a window"
        self._report(f"filling {self._window} with {upto - after:,} past items")

    def note(self, sequence: int) -> None:
        """Report the progress if the last report is old. All items up to a sequence are matched."""
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._report(f"filling {self._window}: {sequence - self._after:,} of {self._upto - self._after:,} items")

    def end(self) -> None:
        """Report that the window is filled."""
        self._report(f"filled {self._window} in {time.monotonic() - self._started:.1f} seconds")

    def _report(self, text: str) -> None:
        self._reported = time.monotonic()
        report_work(self._storage, text)


def _only(parts: Sequence[WindowItems], key: int, after: int) -> WindowItems | None:
    """Return the items of one window after a sequence."""

    def is_member(items: WindowItems) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        members = np.zeros(len(items), dtype=np.bool_)
        members[items.members_of(key)] = True
        return members & (items.sequences > after)

    if not parts:
        return None
    merged = merge_window_items(parts, is_member)
    return merged if len(merged) else None


def _sequence_before(log: ItemLog, sequence: int, microseconds: int) -> int:
    """Return the last sequence that was accepted at least so long before an item."""
    for batch in log.read(sequence - 1, sequence):
        accepted = int(batch.records.column("accepted").cast(pa.int64())[0].as_py())
        return log.sequence_before(accepted - microseconds + 1)
    return 0


def _lookback(definitions: Mapping[int, Node]) -> timedelta:
    """Return how long before an item other items affect the gates below a window. Chained gates add up."""
    rules = [node.rule for node in definitions.values() if isinstance(node, Gated)]
    return sum((rule.lookback for rule in rules), timedelta())
