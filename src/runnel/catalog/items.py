"""The item log's manifest and the seen-set: which segments exist, and which item versions were accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from runnel.catalog import schema
from runnel.catalog.connection import chunks, now
from runnel.model.segment import Tier

_i, _e = schema.item_segments.c, schema.seen.c


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

    @property
    def items(self) -> int:
        """How many items the segment holds."""
        return self.last_sequence - self.first_sequence + 1


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest version of an item that was accepted or only remembered (then without a sequence)."""

    version: int
    fingerprint: bytes
    sequence: int | None


def add_segment(
    connection: Connection,
    tier: Tier,
    path: str,
    *,
    sequences: tuple[int, int],
    times: tuple[int, int],
    size: int,
) -> None:
    """Make a written file part of the log."""
    connection.execute(
        insert(schema.item_segments).values(
            tier=tier.value,
            path=path,
            first_sequence=sequences[0],
            last_sequence=sequences[1],
            accepted=times[0],
            last_accepted=times[1],
            bytes=size,
        )
    )


def segments_between(connection: Connection, after: int, upto: int) -> list[ItemSegment]:
    """The live segments that hold sequences in (after, upto], in order."""
    query = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.last_sequence > after, _i.first_sequence <= upto)
        .order_by(_i.first_sequence)
    )
    return [_segment(row) for row in connection.execute(query)]


def log_segments_upto(connection: Connection, sequence: int) -> list[ItemSegment]:
    """The segments not yet archived whose items are all at or below a sequence, in order."""
    query = (
        select(schema.item_segments)
        .where(_i.retired.is_(None), _i.tier == Tier.LOG.value, _i.last_sequence <= sequence)
        .order_by(_i.first_sequence)
    )
    return [_segment(row) for row in connection.execute(query)]


def retire_segments(connection: Connection, segments: Iterable[ItemSegment]) -> None:
    """Take segments out of the log: others hold their items now. The files go later."""
    for segment in segments:
        connection.execute(update(schema.item_segments).where(_i.id == segment.id).values(retired=now(connection)))


def retired_paths(connection: Connection, before: int) -> list[str]:
    """Files of segments that were retired before a time."""
    query = select(_i.path).where(_i.retired < before)
    return [row.path for row in connection.execute(query)]


def forget_segments(connection: Connection, paths: Iterable[str]) -> None:
    """Drop the rows of retired segments whose files are gone."""
    for path in paths:
        connection.execute(schema.item_segments.delete().where(_i.path == path, _i.retired.is_not(None)))


def all_paths(connection: Connection) -> set[str]:
    """Every file that the manifest names, retired ones too."""
    return {row.path for row in connection.execute(select(_i.path))}


def segments_before(connection: Connection, accepted: int) -> tuple[int, list[ItemSegment]]:
    """The last sequence of the segments that ended before a time, and the live segments that go across it."""
    last = connection.execute(select(func.max(_i.last_sequence)).where(_i.last_accepted < accepted)).scalar()
    query = select(schema.item_segments).where(
        _i.retired.is_(None), _i.accepted < accepted, _i.last_accepted >= accepted
    )
    return int(last or 0), [_segment(row) for row in connection.execute(query)]


def seen_of(connection: Connection, feed: int, keys: Sequence[bytes]) -> dict[bytes, Seen]:
    """What was seen of these item keys in a feed."""
    found: dict[bytes, Seen] = {}
    for some in chunks(keys):
        query = select(schema.seen).where(_e.feed == feed, _e.key.in_(some))
        for row in connection.execute(query):
            found[bytes(row.key)] = Seen(row.version, bytes(row.fingerprint), row.sequence)
    return found


def has_seen_any(connection: Connection, feed: int) -> bool:
    """Whether a feed ever gave an item."""
    return connection.execute(select(_e.feed).where(_e.feed == feed).limit(1)).first() is not None


def record_seen(connection: Connection, feed: int, seen: Mapping[bytes, Seen]) -> None:
    """Put versions into the seen-set, or newer ones in their place."""
    rows: list[dict[str, Any]] = [
        {
            "feed": feed,
            "key": key,
            "version": one.version,
            "fingerprint": one.fingerprint,
            "sequence": one.sequence,
        }
        for key, one in seen.items()
    ]
    if not rows:
        return
    build = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
    statement = build(schema.seen)
    fresh = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["feed", "key"],
            set_={"version": fresh.version, "fingerprint": fresh.fingerprint, "sequence": fresh.sequence},
        ),
        rows,
    )


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
    )
