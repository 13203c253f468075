"""The identity of a workspace as its catalog has it, and how far the catalog's history goes.

In: a connection. Out: the identity, and a point in the history of the workspace that only moves forward.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.leases import RUNNER
from runnel.catalog.store.sequencer import last_sequence

IDENTITY = "identity"
"""The counter that holds the identity as a number."""

_c, _l = schema.counters.c, schema.leases.c


@dataclass(frozen=True, slots=True)
class History:
    """How far a workspace has come: its last accepted item, and how many times its lease was taken."""

    sequence: int = 0
    epoch: int = 0

    def includes(self, other: History) -> bool:
        """Whether everything up to the other point has happened here.

        >>> History(5, 2).includes(History(5, 1)), History(5, 2).includes(History(6, 2))
        (True, False)
        """
        return self.sequence >= other.sequence and self.epoch >= other.epoch


def read_identity(connection: Connection) -> str | None:
    """The identity of the workspace that the catalog belongs to; None in a catalog that is new."""
    value = connection.execute(select(_c.value).where(_c.name == IDENTITY)).scalar_one_or_none()
    return None if value is None else f"{value:016x}"


def set_identity(connection: Connection, identity: str) -> None:
    """Make the catalog belong to a workspace."""
    connection.execute(delete(schema.counters).where(_c.name == IDENTITY))
    connection.execute(insert(schema.counters).values(name=IDENTITY, value=int(identity, 16)))


def read_history(connection: Connection) -> History:
    """How far the catalog's history goes."""
    epoch = connection.execute(select(_l.epoch).where(_l.name == RUNNER)).scalar_one_or_none()
    return History(last_sequence(connection), int(epoch or 0))
