"""Which files with answers of operators exist: rows in the commits of batches, and in the merging of files.

A file without a row is no part of the cache: it was left by a crash, and goes with the other orphans. A row without
its file harms nothing: those who read pass over it.
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
    """A file of the cache; `created` is when its newest answers came, in microseconds since 1970."""

    id: int
    path: str
    bytes: int
    answers: int
    created: int


@dataclass(frozen=True, slots=True)
class CacheTotals:
    """How many files, answers and bytes the cache has."""

    segments: int
    answers: int
    bytes: int


def add_segments(connection: Connection, segments: Iterable[CacheSegment], *, created: int | None = None) -> None:
    """Make written files part of the cache; `created` is said of merged ones."""
    moment = now(connection) if created is None else created
    rows = [
        {"path": one.path, "bytes": one.bytes, "answers": one.answers, "created": moment, "retired": None}
        for one in segments
    ]
    if rows:
        connection.execute(insert(schema.operator_cache), rows)


def live_segments(connection: Connection) -> list[LiveSegment]:
    """The files of the cache, the newest last."""
    query = select(schema.operator_cache).where(_c.retired.is_(None)).order_by(_c.created, _c.id)
    return [LiveSegment(row.id, row.path, row.bytes, row.answers, row.created) for row in connection.execute(query)]


def retire_segments(connection: Connection, segments: Sequence[LiveSegment]) -> int:
    """Take files out of the cache; gives how many were in it. Their files stay for some time: somebody may read."""
    moment, gone = now(connection), 0
    for some in chunks([one.id for one in segments]):
        statement = update(schema.operator_cache).where(_c.id.in_(some), _c.retired.is_(None))
        gone += connection.execute(statement.values(retired=moment)).rowcount
    return gone


def retired_paths(connection: Connection, before: int, *, limit: int) -> list[str]:
    """Files that were retired before a moment."""
    return list(connection.execute(select(_c.path).where(_c.retired < before).limit(limit)).scalars())


def forget_segments(connection: Connection, paths: Sequence[str]) -> None:
    """Forget retired files that were removed."""
    for some in chunks(paths):
        connection.execute(delete(schema.operator_cache).where(_c.path.in_(some), _c.retired.is_not(None)))


def segment_paths(connection: Connection) -> set[str]:
    """All files that a row names, retired ones too."""
    return set(connection.execute(select(_c.path)).scalars())


def cache_totals(connection: Connection) -> CacheTotals:
    """How large the cache is."""
    sums = select(func.count(), func.coalesce(func.sum(_c.answers), 0), func.coalesce(func.sum(_c.bytes), 0))
    row = connection.execute(sums.where(_c.retired.is_(None))).one()
    return CacheTotals(int(row[0]), int(row[1]), int(row[2]))
