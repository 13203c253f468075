"""Plan versions: which base and delta a batch loads. A version is immutable, and versions only grow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.errors import CorruptDataError

_c = schema.plans.c
_LAST_SEQUENCE = select(schema.counters.c.value).where(schema.counters.c.name == "sequence").scalar_subquery()


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A published plan: the folders of its base and delta, and how many queries it holds.

    `removed` are queries that the folders hold and the version does not. Where the queries are distributed over
    workers, `distribution` is the folder that says how, and `pieces` are the plan folders that it names.
    """

    version: int
    base: str
    delta: str | None
    queries: int
    created: int
    removed: tuple[int, ...] = ()
    distribution: str | None = None
    pieces: tuple[str, ...] = ()


def publish_plan(
    connection: Connection,
    base: str,
    delta: str | None,
    queries: int,
    removed: Iterable[int] = (),
    *,
    distribution: str | None = None,
    pieces: Iterable[str] = (),
) -> int:
    """Make a written plan the current one; gives its version."""
    values = {
        "base": base,
        "delta": delta,
        "queries": queries,
        "sequence": _LAST_SEQUENCE,
        "created": now(connection),
        "removed": ",".join(map(str, sorted(removed))) or None,
        "distribution": distribution,
        "pieces": " ".join(pieces) or None,
    }
    result = connection.execute(insert(schema.plans).values(**values).returning(_c.version))
    return int(result.scalar_one())


def current_plan(connection: Connection) -> PlanRow | None:
    """The newest plan."""
    row = connection.execute(select(schema.plans).order_by(_c.version.desc()).limit(1)).one_or_none()
    return None if row is None else _plan_row(row)


def plan_by_version(connection: Connection, version: int) -> PlanRow | None:
    """A plan by its version."""
    row = connection.execute(select(schema.plans).where(_c.version == version)).one_or_none()
    return None if row is None else _plan_row(row)


def distributed_plans(connection: Connection, *, since: int = 0) -> list[PlanRow]:
    """The plans from a version on whose queries are distributed over workers, oldest first."""
    chosen = select(schema.plans).where(_c.version >= since, _c.distribution.is_not(None)).order_by(_c.version)
    return [_plan_row(row) for row in connection.execute(chosen)]


def plan_folders(connection: Connection, *, since: int = 0) -> set[str]:
    """Every folder that the plan versions from `since` on, and always the current one, name."""
    newest = select(func.max(_c.version)).scalar_subquery()
    named = select(_c.base, _c.delta, _c.distribution, _c.pieces)
    rows = connection.execute(named.where(or_(_c.version >= since, _c.version == newest))).all()
    own = {folder for row in rows for folder in (row.base, row.delta, row.distribution) if folder}
    return own | {folder for row in rows for folder in (row.pieces or "").split()}


def forget_plans(connection: Connection, *, before: int, created: int) -> int:
    """Drop versions below one that were made before a time, but never the current one; gives how many went.

    What was noted of distributions that no version has any more goes too.
    """
    newest = select(func.max(_c.version)).scalar_subquery()
    statement = delete(schema.plans).where(_c.version < before, _c.created < created, _c.version != newest)
    gone = connection.execute(statement).rowcount
    kept = select(_c.distribution).where(_c.distribution.is_not(None))
    work = schema.distribution_work
    connection.execute(delete(work).where(work.c.distribution.not_in(kept)))
    return gone


def _plan_row(row: Any) -> PlanRow:
    try:
        removed = tuple(map(int, row.removed.split(","))) if row.removed else ()
    except ValueError as error:
        raise CorruptDataError(f"the catalog names no queries that plan {row.version} is without: {error}") from error
    pieces = tuple((row.pieces or "").split())
    return PlanRow(row.version, row.base, row.delta, row.queries, row.created, removed, row.distribution, pieces)
