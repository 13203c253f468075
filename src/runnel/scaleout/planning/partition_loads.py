"""What partitions have to do: notes in the commits of batches in, what each has done so far out.

The numbers of a partitioning grow with its batches, in the transactions that commit them, so that what is run again
counts once. Who looks at them halves them afterwards, so that what was long ago weighs little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now

_c = schema.distribution_work.c
_COUNTED = ("items", "matches", "microseconds", "loads")


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """What a partition has done: items that came to it, their matches, processor time, and loads of its plan."""

    partition: int
    items: int
    matches: int
    microseconds: int
    loads: int


def note_loads(connection: Connection, partitioning: str, loads: Iterable[PartitionLoad]) -> None:
    """Add what partitions did to what is known of them."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    moment = now(connection)
    for one in loads:
        statement = dialect.insert(schema.distribution_work).values(
            distribution=partitioning,
            part=one.partition,
            noted=moment,
            **{name: getattr(one, name) for name in _COUNTED},
        )
        sums = {name: _c[name] + statement.excluded[name] for name in _COUNTED}
        connection.execute(
            statement.on_conflict_do_update(index_elements=["distribution", "part"], set_={**sums, "noted": moment})
        )


def known_loads(connection: Connection, partitioning: str) -> list[PartitionLoad]:
    """What is known of the partitions of a partitioning, in their order; nothing of those that did nothing."""
    query = select(_c.part, *(_c[name] for name in _COUNTED)).where(_c.distribution == partitioning)
    return [PartitionLoad(*row) for row in connection.execute(query.order_by(_c.part))]


def fade_loads(connection: Connection, partitioning: str) -> None:
    """Let all that is known of a partitioning count half."""
    halves = {name: _c[name] // 2 for name in _COUNTED}
    connection.execute(update(schema.distribution_work).where(_c.distribution == partitioning).values(halves))


def forget_loads(connection: Connection, keep: Collection[str]) -> None:
    """Drop what is known of partitionings, except of those to keep."""
    known = connection.execute(select(_c.distribution).distinct()).scalars()
    for some in chunks(sorted(set(known) - set(keep))):
        connection.execute(delete(schema.distribution_work).where(_c.distribution.in_(some)))
