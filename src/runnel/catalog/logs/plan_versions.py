"""Plan versions: the base and the delta of each published plan. Versions are immutable and ascend."""

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
    """A published plan: the folders of its base and delta, and its number of queries.

    `removed` are queries in the folders that are not part of this version. If the queries are distributed over
    workers, `distribution` is the folder that describes the distribution, and `pieces` are the plan folders that it
    refers to.
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
    """Make a written plan the current plan. Return its version."""
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
    """Return the newest plan, or None if none was published."""
    row = connection.execute(select(schema.plans).order_by(_c.version.desc()).limit(1)).one_or_none()
    return None if row is None else _plan_row(row)


def plan_by_version(connection: Connection, version: int) -> PlanRow | None:
    """Return the plan of a version, or None if it does not exist."""
    row = connection.execute(select(schema.plans).where(_c.version == version)).one_or_none()
    return None if row is None else _plan_row(row)


def distributed_plans(connection: Connection, *, since: int = 0) -> list[PlanRow]:
    """Return the plans from version `since` on whose queries are distributed over workers, oldest first."""
    query = select(schema.plans).where(_c.version >= since, _c.distribution.is_not(None)).order_by(_c.version)
    return [_plan_row(row) for row in connection.execute(query)]


def plan_folders(connection: Connection, *, since: int = 0) -> set[str]:
    """Return all folders of the plan versions from `since` on, and of the current version."""
    newest = select(func.max(_c.version)).scalar_subquery()
    query = select(_c.base, _c.delta, _c.distribution, _c.pieces)
    rows = connection.execute(query.where(or_(_c.version >= since, _c.version == newest))).all()
    own = {folder for row in rows for folder in (row.base, row.delta, row.distribution) if folder}
    return own | {folder for row in rows for folder in (row.pieces or "").split()}


def forget_plans(connection: Connection, *, before: int, created: int) -> int:
    """Delete versions below `before` that were created before a time, except the current one. Return their number.

    Measurements of distributions that no remaining version uses are deleted, too.
    """
    newest = select(func.max(_c.version)).scalar_subquery()
    statement = delete(schema.plans).where(_c.version < before, _c.created < created, _c.version != newest)
    deleted = connection.execute(statement).rowcount
    remaining = select(_c.distribution).where(_c.distribution.is_not(None))
    work = schema.distribution_work
    connection.execute(delete(work).where(work.c.distribution.not_in(remaining)))
    return deleted


def _plan_row(row: Any) -> PlanRow:
    try:
        removed = tuple(map(int, row.removed.split(","))) if row.removed else ()
    except ValueError as error:
        raise CorruptDataError(
            f"the catalog is damaged: the removed queries of plan version {row.version} are not numbers: {error}"
        ) from error
    pieces = tuple((row.pieces or "").split())
    return PlanRow(row.version, row.base, row.delta, row.queries, row.created, removed, row.distribution, pieces)
