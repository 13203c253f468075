"""Files that were read for feeds, so that a file is read again only after it changed.

In: files that were read. Out: their size, time and digest, and their problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now

_s = schema.source_files.c


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read for a feed, its state at that time, and its problem."""

    feed: int
    path: str
    size: int
    modified: int
    digest: str
    problem: str | None = None


def known_files(connection: Connection, feed: int | None = None) -> list[SourceFile]:
    """Return the files that were read, for one feed or for all."""
    query = select(schema.source_files).order_by(_s.feed, _s.path)
    if feed is not None:
        query = query.where(_s.feed == feed)
    rows = connection.execute(query)
    return [SourceFile(row.feed, row.path, row.size, row.modified, row.digest, row.problem) for row in rows]


def record_file(connection: Connection, file: SourceFile) -> None:
    """Record that a file was read."""
    forget_files(connection, file.feed, [file.path])
    connection.execute(
        insert(schema.source_files).values(
            feed=file.feed,
            path=file.path,
            size=file.size,
            modified=file.modified,
            digest=file.digest,
            problem=file.problem,
            checked=now(connection),
        )
    )


def forget_files(connection: Connection, feed: int, paths: Iterable[str]) -> None:
    """Delete the records of files that no longer exist."""
    for path in paths:
        connection.execute(delete(schema.source_files).where(_s.feed == feed, _s.path == path))


def forget_files_of_dropped(connection: Connection, before: int) -> int:
    """Delete the records of feeds that were dropped before a time. Return their number."""
    dropped = select(schema.feeds.c.id).where(schema.feeds.c.dropped < before)
    return connection.execute(delete(schema.source_files).where(_s.feed.in_(dropped))).rowcount
