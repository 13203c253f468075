"""The manifest of the item log, and the seen-set of item versions that were accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from runnel.catalog.store import counters, schema
from runnel.catalog.store.connection import chunks, now
from runnel.errors import NotFoundError
from runnel.model.segment import Tier

DAY = 86_400_000_000
"""A day in catalog time (microseconds)."""

DELETED = bytes(16)
"""The fingerprint of a deleted row of a table."""

LOST = b""
"""The fingerprint of a row whose newest version was lost with its file, so that every version of it is a change."""

_MAX_LEVEL = 3
_i, _e = schema.item_segments.c, schema.seen.c
_ADD = insert(schema.item_segments)


@dataclass(frozen=True, slots=True)
class ItemSegment:
    """One immutable file of accepted items, with consecutive sequences. Times are microseconds since 1970."""

    id: int
    tier: str
    path: str
    first_sequence: int
    last_sequence: int
    bytes: int
    accepted: int
    last_accepted: int
    level: int = 0

    @property
    def began(self) -> int:
        """When its first item was accepted."""
        return self.accepted

    @property
    def items(self) -> int:
        """The number of items in the segment."""
        return self.last_sequence - self.first_sequence + 1


@dataclass(frozen=True, slots=True)
class SeenItem:
    """The newest version of an item that was accepted, or only remembered (without a sequence).

    `day` is the number of the day on which its source last showed it. `position` orders the changes of a row.
    """

    version: int
    fingerprint: bytes
    sequence: int | None
    day: int = field(default=0, compare=False)
    position: bytes | None = None


def add_segment(
    connection: Connection,
    tier: Tier,
    path: str,
    *,
    sequences: tuple[int, int],
    times: tuple[int, int],
    size: int,
    level: int = 0,
) -> None:
    """Add a written file to the log."""
    row = {
        "tier": tier.value,
        "path": path,
        "first_sequence": sequences[0],
        "last_sequence": sequences[1],
        "accepted": times[0],
        "last_accepted": times[1],
        "bytes": size,
        "level": level,
    }
    connection.execute(_ADD, row)


def segments_between(connection: Connection, after: int, upto: int, *, limit: int | None = None) -> list[ItemSegment]:
    """Return the live segments that contain sequences in (after, upto], in order, at most `limit`."""
    query = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.last_sequence > after, _i.first_sequence <= upto)
        .order_by(_i.last_sequence)
        .limit(limit)
    )
    return [_segment(row) for row in connection.execute(query)]


def small_segments(connection: Connection, upto: int, limit: int) -> list[ItemSegment]:
    """Return up to `limit` segments that do not yet cover a whole day and whose items are all at or below
    a sequence.
    """
    query = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.level < _MAX_LEVEL, _i.last_sequence <= upto)
        .order_by(_i.last_sequence)
        .limit(limit)
    )
    return [_segment(row) for row in connection.execute(query)]


def retire_segments(connection: Connection, segments: Iterable[ItemSegment]) -> int:
    """Remove segments from the log, because others contain their items. Return how many were live. Files are deleted
    later.
    """
    time, retired = now(connection), 0
    for chunk in chunks([segment.id for segment in segments]):
        statement = update(schema.item_segments).where(_i.id.in_(chunk), _i.retired.is_(None)).values(retired=time)
        retired += connection.execute(statement).rowcount
    return retired


def set_level(connection: Connection, segment: ItemSegment, level: int) -> None:
    """Change the level of a segment."""
    connection.execute(update(schema.item_segments).where(_i.id == segment.id).values(level=level))


def retired_paths(connection: Connection, before: int, *, limit: int | None = None) -> list[str]:
    """Return files of segments that were retired at or before a time."""
    query = select(_i.path).where(_i.retired <= before).limit(limit)
    return [row.path for row in connection.execute(query)]


def forget_segments(connection: Connection, paths: Iterable[str]) -> None:
    """Delete the rows of retired segments whose files are gone."""
    for chunk in chunks(sorted(paths)):
        connection.execute(delete(schema.item_segments).where(_i.path.in_(chunk), _i.retired.is_not(None)))


def all_paths(connection: Connection) -> set[str]:
    """Return all files in the manifest, including retired ones."""
    return {row.path for row in connection.execute(select(_i.path))}


def live_segment(connection: Connection, path: str) -> ItemSegment | None:
    """Return the live segment of a file, or None."""
    row = connection.execute(select(schema.item_segments).where(_i.path == path, _i.retired.is_(None))).first()
    return None if row is None else _segment(row)


def retired_within(connection: Connection, segment: ItemSegment) -> list[ItemSegment]:
    """Return the retired segments whose items are all in a segment, among them those from which it was merged."""
    inside = (_i.first_sequence >= segment.first_sequence, _i.last_sequence <= segment.last_sequence)
    query = select(schema.item_segments).where(_i.retired.is_not(None), *inside)
    return [_segment(row) for row in connection.execute(query)]


def revive_segments(connection: Connection, segment: ItemSegment, segments: Sequence[ItemSegment]) -> bool:
    """Replace a segment by the retired segments from which it was merged. Return False if one of them is gone."""
    ids = [retired.id for retired in segments]
    there = sum(
        len(connection.execute(select(_i.id).where(_i.id.in_(chunk), _i.retired.is_not(None))).all())
        for chunk in chunks(ids)
    )
    if there != len(ids):
        return False
    for chunk in chunks(ids):
        connection.execute(update(schema.item_segments).where(_i.id.in_(chunk)).values(retired=None))
    connection.execute(update(schema.item_segments).where(_i.id == segment.id).values(retired=now(connection)))
    return True


def lose_segment(connection: Connection, segment: ItemSegment, matched: int) -> int:
    """Remove a damaged file from the log. Its sequences stay assigned, and nothing is read for them.

    Items after the sequence `matched` are removed from the seen-set, so that they are accepted again. Return their
    number. Rows of tables stay in it without a fingerprint, so that every change of them is accepted.
    """
    values = {"tier": Tier.LOST.value, "path": f"{Tier.LOST.value}/{segment.id}", "bytes": 0, "level": _MAX_LEVEL}
    connection.execute(update(schema.item_segments).where(_i.id == segment.id).values(**values))
    of_tables = _e.feed.in_(select(schema.tables.c.feed))
    within = (_e.sequence >= segment.first_sequence, _e.sequence <= segment.last_sequence)
    connection.execute(update(schema.seen).where(of_tables, *within).values(fingerprint=LOST))
    first = max(segment.first_sequence, matched + 1)
    unmatched = (~of_tables, _e.sequence >= first, _e.sequence <= segment.last_sequence)
    return connection.execute(delete(schema.seen).where(*unmatched)).rowcount


def is_live(connection: Connection, path: str) -> bool:
    """Return whether a file is part of the log now."""
    query = select(_i.id).where(_i.path == path, _i.retired.is_(None))
    return connection.execute(query).first() is not None


def segments_before(connection: Connection, accepted: int) -> tuple[int, list[ItemSegment]]:
    """Return the last sequence of the segments that ended before a time, and the live segments that span it."""
    # Times are monotonic along the log, so each query is a single index lookup.
    query = select(_i.last_sequence).where(_i.last_accepted < accepted)
    ended = connection.execute(query.order_by(_i.last_accepted.desc(), _i.last_sequence.desc()).limit(1)).scalar()
    across = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.last_accepted >= accepted)
        .order_by(_i.last_accepted, _i.last_sequence)
        .limit(1)
    )
    spanning = [_segment(row) for row in connection.execute(across) if row.accepted < accepted]
    return max(int(ended or 0), retained_upto(connection)), spanning


def retained_upto(connection: Connection) -> int:
    """Return the last sequence that was deleted, or 0. Kept items begin after it."""
    return counters.read_counter(connection, counters.RETAINED)


def check_kept(connection: Connection, sequence: int) -> None:
    """Raise NotFoundError if the item of a sequence was deleted."""
    retained = retained_upto(connection)
    if sequence <= retained:
        raise NotFoundError(
            f"the items up to sequence {retained} were deleted",
            hint=f"read after sequence {retained}; the setting keep_items_days determines how long items are kept",
        )


def kept_after(connection: Connection, after: int) -> int:
    """Return the sequence after which reading begins. 0 means all kept items. Raise NotFoundError for
    deleted items.
    """
    if after > 0:
        check_kept(connection, after + 1)
    return max(after, retained_upto(connection))


def retain_items(connection: Connection, accepted: int, floor: int) -> int:
    """Delete whole segments that ended before a time and at or below a sequence. Return their number."""
    old = (_i.retired.is_(None), _i.last_accepted < accepted, _i.last_sequence <= floor)
    last = connection.execute(select(func.max(_i.last_sequence)).where(*old)).scalar()
    if last is None:
        return 0
    counters.set_counter(connection, counters.RETAINED, max(int(last), retained_upto(connection)))
    return connection.execute(update(schema.item_segments).where(*old).values(retired=now(connection))).rowcount


def seen_of(connection: Connection, feed: int, keys: Sequence[bytes]) -> dict[bytes, SeenItem]:
    """Return the seen-set entries of these item keys in a feed."""
    seen: dict[bytes, SeenItem] = {}
    for chunk in chunks(keys):
        query = select(schema.seen).where(_e.feed == feed, _e.key.in_(chunk))
        for row in connection.execute(query):
            position = None if row.position is None else bytes(row.position)
            seen[bytes(row.key)] = SeenItem(row.version, bytes(row.fingerprint), row.sequence, row.day, position)
    return seen


def record_seen(connection: Connection, feed: int, seen: Mapping[bytes, SeenItem]) -> None:
    """Add versions to the seen-set, or replace older ones. All were shown today."""
    day = now(connection) // DAY
    rows: list[dict[str, Any]] = [
        {
            "feed": feed,
            "key": key,
            "version": item.version,
            "fingerprint": item.fingerprint,
            "sequence": item.sequence,
            "day": day,
            "position": item.position,
        }
        for key, item in seen.items()
    ]
    if not rows:
        return
    statement = _upsert(connection, schema.seen)
    fresh = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["feed", "key"],
            set_={
                "version": fresh.version,
                "fingerprint": fresh.fingerprint,
                "sequence": fresh.sequence,
                "day": fresh.day,
                "position": fresh.position,
            },
        ),
        rows,
    )
    record_offer(connection, feed)


def touch_seen(connection: Connection, feed: int, keys: Sequence[bytes]) -> None:
    """Record that a source showed these keys today."""
    if not keys:
        return
    day = now(connection) // DAY
    for chunk in chunks(keys):
        connection.execute(update(schema.seen).where(_e.feed == feed, _e.key.in_(chunk)).values(day=day))
    record_offer(connection, feed)


def record_offer(connection: Connection, feed: int) -> None:
    """Record that a feed was offered items today."""
    statement = _upsert(connection, schema.offers)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["feed"], set_={"day": statement.excluded.day}),
        {"feed": feed, "day": now(connection) // DAY},
    )


def expired_seen(connection: Connection, day: int, limit: int) -> list[tuple[int, bytes]]:
    """Return (feed, key) of items that no source has shown since a day and that no source can still be showing.

    A source's items are offered only when it changes: if a page or file has been the same for a year, nothing was
    offered since. So a key is removed only if its feed was offered something later, and if every existing file of the
    feed, and its page on the web, was read completely later. Pushes from a hub do not count, because they are not the
    whole page. A dropped feed shows nothing. The rows of a table are kept until they are deleted.
    """
    files, offers, feeds = schema.source_files.c, schema.offers.c, schema.feeds.c
    polls = schema.polls.c
    read = (
        select(files.feed, (func.min(files.checked) // DAY).label("day"))
        .where(files.digest != "")
        .group_by(files.feed)
        .subquery()
    )
    query = (
        select(_e.feed, _e.key)
        .join(schema.offers, offers.feed == _e.feed, isouter=True)
        .join(schema.feeds, feeds.id == _e.feed, isouter=True)
        .join(read, read.c.feed == _e.feed, isouter=True)
        .join(schema.polls, polls.feed == _e.feed, isouter=True)
        .join(schema.tables, schema.tables.c.feed == _e.feed, isouter=True)
        .where(
            _e.day < day,
            or_(schema.tables.c.feed.is_(None), _e.fingerprint == DELETED),
            or_(
                feeds.dropped.is_not(None),
                (_e.day < offers.day)
                & or_(read.c.day.is_(None), _e.day < read.c.day)
                & or_(polls.feed.is_(None), _e.day < polls.changed // DAY),
            ),
        )
        .limit(limit)
    )
    return [(row.feed, bytes(row.key)) for row in connection.execute(query)]


def forget_seen(connection: Connection, keys: Sequence[tuple[int, bytes]], day: int) -> int:
    """Remove keys from the seen-set unless they were shown again in the meantime. Return their number."""
    forgotten = 0
    by_feed: dict[int, list[bytes]] = {}
    for feed, key in keys:
        by_feed.setdefault(feed, []).append(key)
    for feed, some_keys in by_feed.items():
        for chunk in chunks(some_keys):
            statement = delete(schema.seen).where(_e.feed == feed, _e.key.in_(chunk), _e.day < day)
            forgotten += connection.execute(statement).rowcount
    return forgotten


def newest_sequences(connection: Connection, key: bytes) -> list[tuple[int, int]]:
    """Return (feed, sequence) of the newest accepted version of an item key, for every feed that has it."""
    query = select(_e.feed, _e.sequence).where(_e.key == key, _e.sequence.is_not(None)).order_by(_e.sequence)
    return [(row.feed, row.sequence) for row in connection.execute(query)]


def _segment(row: Any) -> ItemSegment:
    return ItemSegment(
        row.id,
        row.tier,
        row.path,
        row.first_sequence,
        row.last_sequence,
        row.bytes,
        row.accepted,
        row.last_accepted,
        row.level,
    )


def _upsert(connection: Connection, table: Any) -> Any:
    """Return an insert statement that can handle existing rows."""
    return postgresql_insert(table) if connection.dialect.name == "postgresql" else sqlite_insert(table)
