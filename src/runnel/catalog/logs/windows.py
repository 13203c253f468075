"""The windows of joins in the catalog: which windows are filled, and the files with their items.

A window is filled when a join first needs it, and later batches add their items. All of it can be computed from the
item log. So the row of a window is deleted when its definition changes, and the window is filled again. Each time its
items are stored under another key, so that no item of an earlier definition is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from runnel.catalog.declared import feeds
from runnel.catalog.store import counters, schema
from runnel.catalog.store.connection import chunks, now

_w, _s, _f = schema.windows.c, schema.window_segments.c, schema.feeds.c


@dataclass(frozen=True, slots=True)
class FilledWindow:
    """A window whose items are in files: those of the last `microseconds`, and at least the last `items`.

    `key` is the number under which the files list them. `history` identifies the definition of the window's feed, and
    `since` is the sequence after which that feed is matched.
    """

    feed: int
    key: int
    history: bytes
    since: int
    microseconds: int
    items: int


@dataclass(frozen=True, slots=True)
class WindowSegment:
    """A file with items of windows."""

    path: str
    first_sequence: int
    last_sequence: int
    last_accepted: int
    items: int
    bytes: int
    level: int = 0


def filled_windows(connection: Connection) -> dict[int, FilledWindow]:
    """Return the filled windows whose feeds have been matched without a break since then, by feed."""
    query = select(schema.windows).join(schema.feeds, and_(_f.id == _w.feed, _f.since == _w.since))
    return {
        row.feed: FilledWindow(row.feed, row.key, bytes(row.history), row.since, row.microseconds, row.items)
        for row in connection.execute(query)
    }


def store_windows(connection: Connection, windows: Iterable[FilledWindow]) -> None:
    """Store filled windows. They replace those of the same feeds."""
    for window in windows:
        connection.execute(delete(schema.windows).where(_w.feed == window.feed))
        connection.execute(insert(schema.windows).values(asdict(window)))


def count_changes(connection: Connection) -> int:
    """Return how often `redefine_windows` has changed windows."""
    return counters.read_counter(connection, counters.WINDOW_CHANGES)


def redefine_windows(connection: Connection, changed: Collection[int]) -> None:
    """Delete the windows that read one of these feeds, whose definitions change, so that they are filled again.

    A batch that fills such a window at the same time does not store it (see `count_changes`).
    """
    affected = feeds.hidden_among(connection, feeds.all_readers(connection, changed))
    for chunk in chunks(sorted(affected)):
        connection.execute(delete(schema.windows).where(_w.feed.in_(chunk)))
    if affected:
        counters.add_to_counter(connection, counters.WINDOW_CHANGES, 1)


def forget_windows(connection: Connection) -> int:
    """Delete the windows of feeds that are no longer matched. Return their number."""
    matched = select(_f.id).where(_f.since.is_not(None))
    return connection.execute(delete(schema.windows).where(_w.feed.not_in(matched))).rowcount


def empty_windows(connection: Connection) -> None:
    """Retire all files and delete all windows, so that each is filled again when a join needs it."""
    connection.execute(delete(schema.windows))
    connection.execute(update(schema.window_segments).where(_s.retired.is_(None)).values(retired=now(connection)))


def live_segments(connection: Connection) -> list[WindowSegment]:
    """Return the files with the items of windows, the oldest first."""
    query = select(schema.window_segments).where(_s.retired.is_(None)).order_by(_s.last_sequence, _s.path)
    return [
        WindowSegment(
            row.path, row.first_sequence, row.last_sequence, row.last_accepted, row.items, row.bytes, row.level
        )
        for row in connection.execute(query)
    ]


@dataclass(frozen=True, slots=True)
class WindowTotals:
    """The number of filled windows, and the items and bytes of their files."""

    windows: int
    items: int
    bytes: int


def window_totals(connection: Connection) -> WindowTotals:
    """Return totals over all windows. Merging keeps the number of files small."""
    files = select(func.coalesce(func.sum(_s["items"]), 0), func.coalesce(func.sum(_s["bytes"]), 0))
    items, size = connection.execute(files.where(_s.retired.is_(None))).one()
    count = connection.execute(select(func.count()).select_from(schema.windows)).scalar_one()
    return WindowTotals(int(count), int(items), int(size))


def add_segments(connection: Connection, segments: Iterable[WindowSegment]) -> None:
    """Add files."""
    rows = [asdict(segment) for segment in segments]
    if rows:
        connection.execute(insert(schema.window_segments), rows)


def retire_segments(connection: Connection, paths: Collection[str]) -> None:
    """Retire files, which are deleted later."""
    for chunk in chunks(sorted(paths)):
        connection.execute(update(schema.window_segments).where(_s.path.in_(chunk)).values(retired=now(connection)))


def retired_paths(connection: Connection, before: int, *, limit: int | None = None) -> list[str]:
    """Return the files that were retired at or before a time."""
    query = select(_s.path).where(_s.retired <= before).limit(limit)
    return [row.path for row in connection.execute(query)]


def forget_segments(connection: Connection, paths: Collection[str]) -> None:
    """Delete the rows of retired files that are gone."""
    for chunk in chunks(sorted(paths)):
        connection.execute(delete(schema.window_segments).where(_s.path.in_(chunk), _s.retired.is_not(None)))


def segment_paths(connection: Connection) -> set[str]:
    """Return all files, including retired ones."""
    return {row.path for row in connection.execute(select(_s.path))}
