"""The item log's manifest and the seen-set: which segments exist, and which item versions were accepted."""

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
"""A day in the catalog's time."""

_LARGEST_LEVEL = 3
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
        """How many items the segment holds."""
        return self.last_sequence - self.first_sequence + 1


@dataclass(frozen=True, slots=True)
class SeenItem:
    """The newest version of an item that was accepted or only remembered (then without a sequence).

    `day` is the number of the day on which its source last showed it.
    """

    version: int
    fingerprint: bytes
    sequence: int | None
    day: int = field(default=0, compare=False)


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
    """Make a written file part of the log."""
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
    """The live segments that hold sequences in (after, upto], in order; the first so many of them."""
    query = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.last_sequence > after, _i.first_sequence <= upto)
        .order_by(_i.last_sequence)
        .limit(limit)
    )
    return [_segment(row) for row in connection.execute(query)]


def small_segments(connection: Connection, upto: int, limit: int) -> list[ItemSegment]:
    """The first so many segments that are not whole days yet and whose items are all at or below a sequence."""
    query = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.level < _LARGEST_LEVEL, _i.last_sequence <= upto)
        .order_by(_i.last_sequence)
        .limit(limit)
    )
    return [_segment(row) for row in connection.execute(query)]


def retire_segments(connection: Connection, segments: Iterable[ItemSegment]) -> int:
    """Take segments out of the log: others hold their items now. The files go later. Gives how many were live."""
    time, retired = now(connection), 0
    for some in chunks([segment.id for segment in segments]):
        statement = update(schema.item_segments).where(_i.id.in_(some), _i.retired.is_(None)).values(retired=time)
        retired += connection.execute(statement).rowcount
    return retired


def set_level(connection: Connection, segment: ItemSegment, level: int) -> None:
    """Let a segment count as one of another level, as it is."""
    connection.execute(update(schema.item_segments).where(_i.id == segment.id).values(level=level))


def retired_paths(connection: Connection, before: int, *, limit: int | None = None) -> list[str]:
    """Files of segments that were retired at a time or before."""
    query = select(_i.path).where(_i.retired <= before).limit(limit)
    return [row.path for row in connection.execute(query)]


def forget_segments(connection: Connection, paths: Iterable[str]) -> None:
    """Drop the rows of retired segments whose files are gone."""
    for some in chunks(sorted(paths)):
        connection.execute(delete(schema.item_segments).where(_i.path.in_(some), _i.retired.is_not(None)))


def all_paths(connection: Connection) -> set[str]:
    """Every file that the manifest names, retired ones too."""
    return {row.path for row in connection.execute(select(_i.path))}


def live_segment(connection: Connection, path: str) -> ItemSegment | None:
    """The segment of a file that is part of the log now."""
    row = connection.execute(select(schema.item_segments).where(_i.path == path, _i.retired.is_(None))).first()
    return None if row is None else _segment(row)


def retired_within(connection: Connection, segment: ItemSegment) -> list[ItemSegment]:
    """The retired segments whose items are all in another one: those that it was merged from are among them."""
    inside = (_i.first_sequence >= segment.first_sequence, _i.last_sequence <= segment.last_sequence)
    query = select(schema.item_segments).where(_i.retired.is_not(None), *inside)
    return [_segment(row) for row in connection.execute(query)]


def revive_segments(connection: Connection, segment: ItemSegment, pieces: Sequence[ItemSegment]) -> bool:
    """Put retired segments back in the place of the one that they were merged into; False if one of them is gone."""
    ids = [piece.id for piece in pieces]
    there = sum(
        len(connection.execute(select(_i.id).where(_i.id.in_(some), _i.retired.is_not(None))).all())
        for some in chunks(ids)
    )
    if there != len(ids):
        return False
    for some in chunks(ids):
        connection.execute(update(schema.item_segments).where(_i.id.in_(some)).values(retired=None))
    connection.execute(update(schema.item_segments).where(_i.id == segment.id).values(retired=now(connection)))
    return True


def lose_segment(connection: Connection, segment: ItemSegment, matched: int) -> int:
    """Take a damaged file out of the log; its sequences stay taken, and nothing is read for them.

    Items after the sequence `matched` leave the seen-set, so that they are accepted again. Gives how many.
    """
    values = {"tier": Tier.LOST.value, "path": f"{Tier.LOST.value}/{segment.id}", "bytes": 0, "level": _LARGEST_LEVEL}
    connection.execute(update(schema.item_segments).where(_i.id == segment.id).values(**values))
    first = max(segment.first_sequence, matched + 1)
    unmatched = (_e.sequence >= first, _e.sequence <= segment.last_sequence)
    return connection.execute(delete(schema.seen).where(*unmatched)).rowcount


def is_live(connection: Connection, path: str) -> bool:
    """Whether a file is part of the log now."""
    query = select(_i.id).where(_i.path == path, _i.retired.is_(None))
    return connection.execute(query).first() is not None


def segments_before(connection: Connection, accepted: int) -> tuple[int, list[ItemSegment]]:
    """The last sequence of the segments that ended before a time, and the live segments that go across it."""
    # Times never go back along the log, so each answer is one step into an index.
    query = select(_i.last_sequence).where(_i.last_accepted < accepted)
    ended = connection.execute(query.order_by(_i.last_accepted.desc(), _i.last_sequence.desc()).limit(1)).scalar()
    across = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.last_accepted >= accepted)
        .order_by(_i.last_accepted, _i.last_sequence)
        .limit(1)
    )
    found = [_segment(row) for row in connection.execute(across) if row.accepted < accepted]
    return max(int(ended or 0), retained_upto(connection)), found


def retained_upto(connection: Connection) -> int:
    """The last sequence that is no longer kept; 0 while everything is. What is kept begins just after it."""
    return counters.read_counter(connection, counters.RETAINED)


def check_kept(connection: Connection, sequence: int) -> None:
    """Raise NotFound if an item, by its sequence, is no longer kept."""
    retained = retained_upto(connection)
    if sequence <= retained:
        raise NotFoundError(
            f"the items up to sequence {retained} were deleted",
            hint=f"read after {retained}; the setting keep_items_days determines how long items are kept",
        )


def kept_after(connection: Connection, after: int) -> int:
    """Where reading after a sequence begins: 0 means all that is kept; what is no longer kept cannot be asked for."""
    if after > 0:
        check_kept(connection, after + 1)
    return max(after, retained_upto(connection))


def retain_items(connection: Connection, accepted: int, floor: int) -> int:
    """Let go of whole segments that ended before a time and at or below a sequence; gives how many went."""
    old = (_i.retired.is_(None), _i.last_accepted < accepted, _i.last_sequence <= floor)
    last = connection.execute(select(func.max(_i.last_sequence)).where(*old)).scalar()
    if last is None:
        return 0
    counters.set_counter(connection, counters.RETAINED, max(int(last), retained_upto(connection)))
    return connection.execute(update(schema.item_segments).where(*old).values(retired=now(connection))).rowcount


def seen_of(connection: Connection, feed: int, keys: Sequence[bytes]) -> dict[bytes, SeenItem]:
    """What was seen of these item keys in a feed."""
    found: dict[bytes, SeenItem] = {}
    for some in chunks(keys):
        query = select(schema.seen).where(_e.feed == feed, _e.key.in_(some))
        for row in connection.execute(query):
            found[bytes(row.key)] = SeenItem(row.version, bytes(row.fingerprint), row.sequence, row.day)
    return found


def record_seen(connection: Connection, feed: int, seen: Mapping[bytes, SeenItem]) -> None:
    """Put versions into the seen-set, or newer ones in their place; all were shown today."""
    day = now(connection) // DAY
    rows: list[dict[str, Any]] = [
        {
            "feed": feed,
            "key": key,
            "version": one.version,
            "fingerprint": one.fingerprint,
            "sequence": one.sequence,
            "day": day,
        }
        for key, one in seen.items()
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
            },
        ),
        rows,
    )
    record_offer(connection, feed)


def touch_seen(connection: Connection, feed: int, keys: Sequence[bytes]) -> None:
    """Say that a source showed these keys today."""
    if not keys:
        return
    day = now(connection) // DAY
    for some in chunks(keys):
        connection.execute(update(schema.seen).where(_e.feed == feed, _e.key.in_(some)).values(day=day))
    record_offer(connection, feed)


def record_offer(connection: Connection, feed: int) -> None:
    """Say that a feed was offered items today."""
    statement = _upsert(connection, schema.offers)
    connection.execute(
        statement.on_conflict_do_update(index_elements=["feed"], set_={"day": statement.excluded.day}),
        {"feed": feed, "day": now(connection) // DAY},
    )


def expired_seen(connection: Connection, day: int, limit: int) -> list[tuple[int, bytes]]:
    """(feed, key) of items that no source has shown since a day, and that none can still be showing.

    What a source shows is told only when it changes: of a page, or a file, that has been the same for a year, nothing
    was offered since. So a key goes only if its feed was offered something after it, and every file of the feed that
    is still there, and its page on the web, was read whole after it: what a hub pushes is not the page. A dropped
    feed shows nothing.
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
        .where(
            _e.day < day,
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
    """Take keys out of the seen-set unless they were shown again meanwhile; gives how many went."""
    forgotten = 0
    by_feed: dict[int, list[bytes]] = {}
    for feed, key in keys:
        by_feed.setdefault(feed, []).append(key)
    for feed, some_keys in by_feed.items():
        for some in chunks(some_keys):
            statement = delete(schema.seen).where(_e.feed == feed, _e.key.in_(some), _e.day < day)
            forgotten += connection.execute(statement).rowcount
    return forgotten


def newest_sequences(connection: Connection, key: bytes) -> list[tuple[int, int]]:
    """(feed, sequence) of the newest accepted version of an item key, in every feed that has it."""
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
    """An insertion that may say what to do where the row is there already."""
    return postgresql_insert(table) if connection.dialect.name == "postgresql" else sqlite_insert(table)
