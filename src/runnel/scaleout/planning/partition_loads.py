"""The measured load of each partition, in the catalog.

In: the loads of a batch, recorded in the transaction that commits it, so a replayed batch counts only once. Out: the
sums for each partition. Rebalancing halves them after each check, so old batches count less and less.
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
    """The load of a partition: items that were routed to it, their matches, CPU time, and loads of its plan."""

    partition: int
    items: int
    matches: int
    microseconds: int
    loads: int


def note_loads(connection: Connection, partitioning: str, loads: Iterable[PartitionLoad]) -> None:
    """Add the loads of a batch to the recorded loads."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    moment = now(connection)
    for load in loads:
        statement = dialect.insert(schema.distribution_work).values(
            distribution=partitioning,
            part=load.partition,
            noted=moment,
            **{name: getattr(load, name) for name in _COUNTED},
        )
        sums = {name: _c[name] + statement.excluded[name] for name in _COUNTED}
        connection.execute(
            statement.on_conflict_do_update(index_elements=["distribution", "part"], set_={**sums, "noted": moment})
        )


def known_loads(connection: Connection, partitioning: str) -> list[PartitionLoad]:
    """Return the recorded loads of a partitioning by partition. Partitions without a load are missing."""
    query = select(_c.part, *(_c[name] for name in _COUNTED)).where(_c.distribution == partitioning)
    return [PartitionLoad(*row) for row in connection.execute(query.order_by(_c.part))]


def fade_loads(connection: Connection, partitioning: str) -> None:
    """Halve the recorded loads of a partitioning."""
    halves = {name: _c[name] // 2 for name in _COUNTED}
    connection.execute(update(schema.distribution_work).where(_c.distribution == partitioning).values(halves))


def forget_loads(connection: Connection, keep: Collection[str]) -> None:
    """Delete the recorded loads of all partitionings except `keep`."""
    recorded = connection.execute(select(_c.distribution).distinct()).scalars()
    for chunk in chunks(sorted(set(recorded) - set(keep))):
        connection.execute(delete(schema.distribution_work).where(_c.distribution.in_(chunk)))
