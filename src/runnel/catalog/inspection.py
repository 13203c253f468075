"""What was put aside for a person to look at: broken documents, refused items, failed evaluations; source files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from runnel.catalog import schema
from runnel.catalog.connection import now

DOCUMENT, ITEM, EVALUATION = "document", "item", "evaluation"
_q, _s = schema.quarantine.c, schema.source_files.c


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Something put aside: what kind of thing, where it came from, why, and where its bytes are kept."""

    kind: str
    place: str
    reason: str
    feed: int | None = None
    query: int | None = None
    sequence: int | None = None
    path: str | None = None
    id: int = 0
    created: int = 0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read for a feed, as it was then, and what was wrong with it."""

    feed: int
    path: str
    size: int
    modified: int
    digest: str
    problem: str | None = None


def put_aside(connection: Connection, thing: Quarantined) -> None:
    """Keep something for inspection."""
    connection.execute(
        insert(schema.quarantine).values(
            kind=thing.kind,
            feed=thing.feed,
            query=thing.query,
            sequence=thing.sequence,
            place=thing.place,
            reason=thing.reason[:2000],
            path=thing.path,
            created=now(connection),
        )
    )


def put_aside_things(connection: Connection, limit: int = 1000) -> list[Quarantined]:
    """What was put aside, newest first."""
    query = select(schema.quarantine).order_by(_q.id.desc()).limit(limit)
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


def put_aside_count(connection: Connection) -> int:
    """How many things were put aside."""
    return int(connection.execute(select(func.count()).select_from(schema.quarantine)).scalar_one())


def source_files(connection: Connection, feed: int | None = None) -> list[SourceFile]:
    """The files read so far, for one feed or for all."""
    query = select(schema.source_files).order_by(_s.feed, _s.path)
    if feed is not None:
        query = query.where(_s.feed == feed)
    rows: list[Any] = list(connection.execute(query))
    return [SourceFile(row.feed, row.path, row.size, row.modified, row.digest, row.problem) for row in rows]


def forget_source_files(connection: Connection, feed: int, paths: Iterable[str]) -> None:
    """Forget files that are gone."""
    for path in paths:
        connection.execute(delete(schema.source_files).where(_s.feed == feed, _s.path == path))


def record_source_file(connection: Connection, file: SourceFile) -> None:
    """Remember a file as read."""
    connection.execute(delete(schema.source_files).where(_s.feed == file.feed, _s.path == file.path))
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
