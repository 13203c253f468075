"""Files that were read for feeds: what they were like then, so that a file is read again only after it changed.

In: files that were read. Out: their size, time and digest, and what was wrong with them.
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
    """A file that was read for a feed, as it was then, and what was wrong with it."""

    feed: int
    path: str
    size: int
    modified: int
    digest: str
    problem: str | None = None


def known_files(connection: Connection, feed: int | None = None) -> list[SourceFile]:
    """The files that were read, for one feed or for all."""
    query = select(schema.source_files).order_by(_s.feed, _s.path)
    if feed is not None:
        query = query.where(_s.feed == feed)
    rows = connection.execute(query)
    return [SourceFile(row.feed, row.path, row.size, row.modified, row.digest, row.problem) for row in rows]


def record_file(connection: Connection, file: SourceFile) -> None:
    """Note that a file was read."""
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
    """Forget files that are gone."""
    for path in paths:
        connection.execute(delete(schema.source_files).where(_s.feed == feed, _s.path == path))


def forget_files_of_dropped(connection: Connection, before: int) -> int:
    """Forget the files of feeds that were dropped before a time; gives how many."""
    dropped = select(schema.feeds.c.id).where(schema.feeds.c.dropped < before)
    return connection.execute(delete(schema.source_files).where(_s.feed.in_(dropped))).rowcount
