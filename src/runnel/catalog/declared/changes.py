"""A counter of changes to the declarations, and the ids of the next declarations.

A change can be prepared without blocking other writers: if both values are the same before and after, everything that
the change depends on is the same.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, text, update

from runnel.catalog.store import schema

_c = schema.counters.c
_NAME = "declarations"
_SQLITE = "sqlite"


def changes(connection: Connection) -> int:
    """Return how often anything was declared, ended or activated in this catalog."""
    value = connection.execute(select(_c.value).where(_c.name == _NAME)).scalar_one_or_none()
    return 0 if value is None else int(value)


def note_change(connection: Connection) -> None:
    """Count a transaction that changes feeds, subscriptions or the set of matched queries."""
    counted = connection.execute(update(schema.counters).where(_c.name == _NAME).values(value=_c.value + 1))
    if counted.rowcount == 0:
        connection.execute(insert(schema.counters).values(name=_NAME, value=1))


def next_number(connection: Connection, table: str) -> int:
    """Return the id of the next row of `feeds` or `subscriptions`. Ids of rolled-back rows may be skipped."""
    if connection.dialect.name == _SQLITE:
        last = connection.execute(text("select seq from sqlite_sequence where name = :name"), {"name": table})
        return int(last.scalar_one_or_none() or 0) + 1
    sequence = connection.execute(text("select pg_get_serial_sequence(:name, 'id')"), {"name": table}).scalar_one()
    named = f"select last_value, is_called from {sequence}"  # noqa: S608  (the server's own quoted name of the sequence)
    row = connection.execute(text(named)).one()
    return int(row.last_value) + bool(row.is_called)


def take_numbers(connection: Connection, table: str, last: int) -> None:
    """Reserve the ids up to `last`, because rows with these ids were inserted explicitly."""
    if connection.dialect.name != _SQLITE:  # SQLite does this itself
        connection.execute(
            text("select setval(pg_get_serial_sequence(:name, 'id'), :last)"), {"name": table, "last": last}
        )
