"""Files that were read for feeds, so that a file is read again only after it changed.

In: files that were read. Out: their size, time and digest, and their problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now

_s = schema.source_files.c


@dataclass(frozen=True, slots=True)
class DocumentState:
    """The state of a document when it was last read. `digest` is empty if its content could not be read."""

    path: str
    size: int
    modified: int
    digest: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read for a feed, its state at that time, and the problem that was found, if any."""

    feed: int
    state: DocumentState
    problem: str | None = None


def known_files(connection: Connection, feed: int | None = None) -> list[SourceFile]:
    """Return the files that were read, for one feed or for all."""
    query = select(schema.source_files).order_by(_s.feed, _s.path)
    if feed is not None:
        query = query.where(_s.feed == feed)
    return [
        SourceFile(row.feed, DocumentState(row.path, row.size, row.modified, row.digest), row.problem)
        for row in connection.execute(query)
    ]


def record_file(connection: Connection, file: SourceFile) -> None:
    """Record that a file was read."""
    forget_files(connection, file.feed, [file.state.path])
    row = {**asdict(file.state), "feed": file.feed, "problem": file.problem, "checked": now(connection)}
    connection.execute(insert(schema.source_files).values(row))


def forget_files(connection: Connection, feed: int, paths: Iterable[str]) -> None:
    """Delete the records of these files."""
    for path in paths:
        connection.execute(delete(schema.source_files).where(_s.feed == feed, _s.path == path))


def forget_files_of_dropped(connection: Connection, before: int) -> int:
    """Delete the records of feeds that were dropped before a time. Return their number."""
    dropped = select(schema.feeds.c.id).where(schema.feeds.c.dropped < before)
    return connection.execute(delete(schema.source_files).where(_s.feed.in_(dropped))).rowcount
