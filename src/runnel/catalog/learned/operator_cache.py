"""The manifest of the operator cache: files of cached answers, added with batches and by merging.

A file without a row is not part of the cache: a crash left it behind, and it is deleted as an orphan. A row without
its file is harmless: readers skip it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.operator_cache import CacheSegment

_c = schema.operator_cache.c


@dataclass(frozen=True, slots=True)
class LiveSegment:
    """A file of the cache. `created` is the time of its newest answers, in microseconds since 1970."""

    id: int
    path: str
    bytes: int
    answers: int
    created: int


@dataclass(frozen=True, slots=True)
class CacheTotals:
    """The number of files, answers and bytes of the cache."""

    segments: int
    answers: int
    bytes: int


def add_segments(connection: Connection, segments: Iterable[CacheSegment], *, created: int | None = None) -> None:
    """Add written files to the cache. `created` is given for merged files."""
    moment = now(connection) if created is None else created
    rows = [
        {"path": segment.path, "bytes": segment.bytes, "answers": segment.answers, "created": moment, "retired": None}
        for segment in segments
    ]
    if rows:
        connection.execute(insert(schema.operator_cache), rows)


def live_segments(connection: Connection) -> list[LiveSegment]:
    """Return the files of the cache, the newest last."""
    query = select(schema.operator_cache).where(_c.retired.is_(None)).order_by(_c.created, _c.id)
    return [LiveSegment(row.id, row.path, row.bytes, row.answers, row.created) for row in connection.execute(query)]


def retire_segments(connection: Connection, segments: Sequence[LiveSegment]) -> int:
    """Remove files from the cache. Return how many were in it. The files stay for some time for
    concurrent readers.
    """
    moment, retired = now(connection), 0
    for chunk in chunks([segment.id for segment in segments]):
        statement = update(schema.operator_cache).where(_c.id.in_(chunk), _c.retired.is_(None))
        retired += connection.execute(statement.values(retired=moment)).rowcount
    return retired


def retired_paths(connection: Connection, before: int, *, limit: int) -> list[str]:
    """Return files that were retired before a time."""
    return list(connection.execute(select(_c.path).where(_c.retired < before).limit(limit)).scalars())


def forget_segments(connection: Connection, paths: Sequence[str]) -> None:
    """Delete the rows of retired files that were deleted."""
    for chunk in chunks(paths):
        connection.execute(delete(schema.operator_cache).where(_c.path.in_(chunk), _c.retired.is_not(None)))


def segment_paths(connection: Connection) -> set[str]:
    """Return all files that have a row, including retired ones."""
    return set(connection.execute(select(_c.path)).scalars())


def cache_totals(connection: Connection) -> CacheTotals:
    """Return the size of the cache."""
    sums = select(func.count(), func.coalesce(func.sum(_c.answers), 0), func.coalesce(func.sum(_c.bytes), 0))
    row = connection.execute(sums.where(_c.retired.is_(None))).one()
    return CacheTotals(int(row[0]), int(row[1]), int(row[2]))
