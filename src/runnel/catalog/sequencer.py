"""The sequencer: one per root. Accepted items get consecutive numbers and times that never go back."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, insert, select, update

from runnel.catalog import schema
from runnel.catalog.connection import now

_c = schema.counters.c


def last_sequence(connection: Connection) -> int:
    """The sequence of the last accepted item; 0 if there is none."""
    return _value(connection, "sequence")


def take_sequences(connection: Connection, count: int) -> tuple[int, int]:
    """Reserve `count` sequences: gives the first one and the acceptance time, in this transaction."""
    first = last_sequence(connection) + 1
    # A clock that is set back must not reorder the log: time stands still until the clock has caught up.
    accepted = max(now(connection), _value(connection, "clock"))
    connection.execute(update(schema.counters).where(_c.name == "sequence").values(value=first + count - 1))
    connection.execute(update(schema.counters).where(_c.name == "clock").values(value=accepted))
    return first, accepted


def root_number(connection: Connection) -> int:
    """A number that tells this root from others; chosen when it is first asked for, in a transaction that writes."""
    found = connection.execute(select(_c.value).where(_c.name == "root")).scalar_one_or_none()
    if found is None:
        found = secrets.randbits(62)
        connection.execute(insert(schema.counters).values(name="root", value=found))
    return int(found)


def _value(connection: Connection, name: str) -> int:
    return int(connection.execute(select(_c.value).where(_c.name == name)).scalar_one())
