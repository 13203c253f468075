"""Quarantine: broken documents, refused items, failed evaluations and damaged files that wait for inspection.

In: a failure and its reason. Out: lists of failures, and the files whose content can be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, update

from runnel.catalog.store import counters, schema
from runnel.catalog.store.connection import chunks, now

DOCUMENT, ITEM, EVALUATION, OPERATOR, FILE = "document", "item", "evaluation", "operator", "file"
NO_BYTES = "; its content was deleted"
_q = schema.quarantine.c


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A quarantine entry: its kind, origin and reason, and the file with its content."""

    kind: str
    place: str
    reason: str
    feed: int | None = None
    query: int | None = None
    sequence: int | None = None
    path: str | None = None
    id: int = 0
    created: int = 0


def add_quarantined(connection: Connection, entry: Quarantined) -> None:
    """Add an entry."""
    connection.execute(
        insert(schema.quarantine).values(
            kind=entry.kind,
            feed=entry.feed,
            query=entry.query,
            sequence=entry.sequence,
            place=entry.place,
            reason=entry.reason[:2000],
            path=entry.path,
            created=now(connection),
        )
    )
    counters.add_to_counter(connection, counters.QUARANTINED, 1)


def quarantined_rows(connection: Connection, limit: int = 1000, *, owner: int | None = None) -> list[Quarantined]:
    """Return the entries, newest first, of all owners or of one.

    A failed evaluation belongs to the owner of its query, every other entry to the owner of its feed.
    """
    query = select(schema.quarantine).order_by(_q.id.desc()).limit(limit)
    if owner is not None:
        feed = schema.feeds.c
        query = query.join(schema.feeds, feed.id == func.coalesce(_q.query, _q.feed)).where(feed.owner == owner)
    return [
        Quarantined(
            row.kind,
            row.place,
            row.reason,
            row.feed,
            row.query,
            row.sequence,
            row.path,
            row.id,
            row.created,
        )
        for row in connection.execute(query)
    ]


def quarantined_count(connection: Connection) -> int:
    """Count the entries."""
    return counters.read_counter(connection, counters.QUARANTINED)


def damaged_paths(connection: Connection) -> set[str]:
    """Return files of the workspace that are quarantined because they are damaged."""
    return {row.path for row in connection.execute(select(_q.path).where(_q.kind == FILE, _q.path.is_not(None)))}


def unmeasured_quarantined(connection: Connection, limit: int) -> list[str]:
    """Return files of entries whose size is not recorded yet."""
    query = select(_q.path).where(_q.path.is_not(None), _q.bytes.is_(None)).order_by(_q.id).limit(limit)
    return list(dict.fromkeys(row.path for row in connection.execute(query)))


def measure_quarantined(connection: Connection, sizes: Mapping[str, int]) -> None:
    """Record the sizes of files. Several entries may share a file."""
    for path, size in sizes.items():
        row = connection.execute(select(_q.bytes).where(_q.path == path, _q.bytes.is_not(None)).limit(1)).first()
        connection.execute(update(schema.quarantine).where(_q.path == path, _q.bytes.is_(None)).values(bytes=size))
        counters.add_to_counter(connection, counters.QUARANTINED_BYTES, size if row is None else 0)


def quarantined_bytes(connection: Connection) -> int:
    """Return the total size of all measured files."""
    return counters.read_counter(connection, counters.QUARANTINED_BYTES)


def drop_oldest_quarantined(connection: Connection, surplus: int, limit: int) -> list[str]:
    """Release the oldest quarantined files, at least `surplus` bytes, and return their paths.

    Their entries stay, with a note in the reason.
    """
    query = select(_q.path, _q.bytes).where(_q.path.is_not(None), _q.bytes.is_not(None)).order_by(_q.id).limit(limit)
    dropped: dict[str, int] = {}
    for row in connection.execute(query):
        if surplus <= 0:
            break
        surplus -= 0 if row.path in dropped else row.bytes
        dropped[row.path] = row.bytes
    for path in dropped:
        connection.execute(
            update(schema.quarantine)
            .where(_q.path == path)
            .values(path=None, bytes=None, reason=_q.reason + NO_BYTES)
        )
    counters.add_to_counter(connection, counters.QUARANTINED_BYTES, -sum(dropped.values()))
    return list(dropped)


def forget_quarantined(connection: Connection, before: int, limit: int) -> list[str]:
    """Delete up to `limit` of the oldest entries from before a time. Return their files."""
    query = select(_q.id, _q.path, _q.bytes).where(_q.created < before).order_by(_q.id).limit(limit)
    rows = connection.execute(query).all()
    for chunk in chunks([row.id for row in rows]):
        connection.execute(delete(schema.quarantine).where(_q.id.in_(chunk)))
    counters.add_to_counter(connection, counters.QUARANTINED, -len(rows))
    sizes = {row.path: row.bytes for row in rows if row.path is not None}
    shared = {
        row.path
        for chunk in chunks(sorted(sizes))
        for row in connection.execute(select(_q.path).where(_q.path.in_(chunk)))
    }
    gone = {path: size for path, size in sizes.items() if path not in shared}
    counters.add_to_counter(connection, counters.QUARANTINED_BYTES, -sum(size or 0 for size in gone.values()))
    return list(gone)


def quarantined_paths(connection: Connection) -> set[str]:
    """Return all files of entries."""
    return {row.path for row in connection.execute(select(_q.path).where(_q.path.is_not(None)))}
