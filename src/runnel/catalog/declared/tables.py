"""Tables in the catalog: their schemas and counts. The rows are in the item log and in the files of `table_files`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.model.table import TableSchema

_t, _f = schema.tables.c, schema.table_files.c


@dataclass(frozen=True, slots=True)
class Table:
    """A registered table.

    It has changes with sequences in (since, last_change]. `rows` are its live rows, `changes` all of its changes,
    `tail` those after its newest base, and `late` the changes that `ordered by` skipped.
    """

    feed: int
    schema: TableSchema
    since: int
    last_change: int
    rows: int = 0
    changes: int = 0
    tail: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class TableCounts:
    """Totals of all tables."""

    tables: int
    rows: int
    tail: int
    late: int


def add_table(connection: Connection, feed: int, content: TableSchema, sequence: int) -> None:
    """Add a table without rows, whose changes come after a sequence."""
    row = {"feed": feed, "content": content.to_json(), "since": sequence, "last_change": sequence}
    connection.execute(insert(schema.tables).values(row))


def set_schema(connection: Connection, feed: int, content: TableSchema) -> None:
    """Replace the schema of a table."""
    connection.execute(update(schema.tables).where(_t.feed == feed).values(content=content.to_json()))


def forget_table(connection: Connection, feed: int) -> None:
    """Delete a dropped table. Its files are retired and deleted later."""
    connection.execute(delete(schema.tables).where(_t.feed == feed))
    connection.execute(
        update(schema.table_files).where(_f.feed == feed, _f.retired.is_(None)).values(retired=now(connection))
    )


def table_of(connection: Connection, feed: int) -> Table | None:
    """Return the table with the id of a feed, or None."""
    row = connection.execute(select(schema.tables).where(_t.feed == feed)).one_or_none()
    return None if row is None else _table(row)


def all_tables(connection: Connection) -> list[Table]:
    """Return all tables, in the order of their registration."""
    return [_table(row) for row in connection.execute(select(schema.tables).order_by(_t.feed))]


def table_counts(connection: Connection) -> TableCounts:
    """Count the tables, their rows, the changes that are not in a base yet, and the late changes."""
    sums = (func.coalesce(func.sum(column), 0) for column in (_t.rows, _t.tail, _t.late))
    row = connection.execute(select(func.count(), *sums).select_from(schema.tables)).one()
    return TableCounts(*map(int, row))


def note_changes(
    connection: Connection, feed: int, *, last_change: int | None, changes: int, rows: int, late: int
) -> None:
    """Record accepted and late changes of a table. `rows` is the increase of its number of live rows."""
    values: dict[str, Any] = {
        "changes": _t.changes + changes,
        "tail": _t.tail + changes,
        "rows": _t.rows + rows,
        "late": _t.late + late,
    }
    if last_change is not None:
        values["last_change"] = last_change
    connection.execute(update(schema.tables).where(_t.feed == feed).values(values))


def subtract_tail(connection: Connection, feed: int, changes: int) -> None:
    """Record that a new base contains this number of further changes."""
    connection.execute(update(schema.tables).where(_t.feed == feed).values(tail=_t.tail - changes))


def tables_among(connection: Connection, feeds: Iterable[int]) -> dict[int, Table]:
    """Return the tables among these feeds, by id."""
    wanted = set(feeds)
    return {table.feed: table for table in all_tables(connection) if table.feed in wanted}


def _table(row: Any) -> Table:
    content = TableSchema.from_json(row.content)
    return Table(row.feed, content, row.since, row.last_change, row.rows, row.changes, row.tail, row.late)
