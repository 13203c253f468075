"""The identity of a workspace in its catalog, and the progress of the catalog's history.

In: a connection. Out: the identity, and a point in the history of the workspace that only moves forward.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.leases import RUNNER
from runnel.catalog.store.sequencer import last_sequence

IDENTITY = "identity"
"""The counter that contains the identity as a number."""

_c, _l = schema.counters.c, schema.leases.c


@dataclass(frozen=True, slots=True)
class History:
    """The progress of a workspace: its last accepted item, and how often its lease was acquired."""

    sequence: int = 0
    epoch: int = 0

    def includes(self, other: History) -> bool:
        """Return whether this history includes everything up to the other point.

        >>> History(5, 2).includes(History(5, 1)), History(5, 2).includes(History(6, 2))
        (True, False)
        """
        return self.sequence >= other.sequence and self.epoch >= other.epoch


def read_identity(connection: Connection) -> str | None:
    """Return the identity of the workspace to which the catalog belongs, or None for a new catalog."""
    value = connection.execute(select(_c.value).where(_c.name == IDENTITY)).scalar_one_or_none()
    return None if value is None else f"{value:016x}"


def set_identity(connection: Connection, identity: str) -> None:
    """Assign the catalog to a workspace."""
    connection.execute(delete(schema.counters).where(_c.name == IDENTITY))
    connection.execute(insert(schema.counters).values(name=IDENTITY, value=int(identity, 16)))


def read_history(connection: Connection) -> History:
    """Return the progress of the catalog's history."""
    epoch = connection.execute(select(_l.epoch).where(_l.name == RUNNER)).scalar_one_or_none()
    return History(last_sequence(connection), int(epoch or 0))
