"""`show tables` and `show rows`. They only read.

In: statements. Out: tables with their numbers of rows and changes, and rows as of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from runnel.algebra.nodes.attributes import WHOLE
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.semantics.evaluate import holds
from runnel.algebra.semantics.window_conditions import atoms_of
from runnel.catalog.access.owners import owner_names
from runnel.catalog.declared.tables import Table, tables_among
from runnel.catalog.store.connection import now
from runnel.engine.actors import Actor, check_actor, feed_named, readable_feeds
from runnel.engine.answers import Answer, Listing, Rendering
from runnel.engine.workspace import Workspace
from runnel.errors import NotFoundError, UnknownNameError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.statements import ShowRows
from runnel.logs.tables.table_store import Row, TableView
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Value
from runnel.model.table import TableSchema

SHOWN = 1_000
"""The number of rows that `show rows` shows."""

_WIDTH = 40


@dataclass(frozen=True, slots=True)
class TableRow:
    """A registered table: its numbers of rows and changes, of changes in memory, and of skipped late changes."""

    id: int
    name: str
    owner: str
    statement: str
    rows: int
    changes: int
    tail: int
    late: int
    last_change: int
    is_own: bool = True

    def lines(self) -> list[str]:
        """Return the statement, with the number of rows as a comment."""
        rows = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        late = f", {self.late:,} late changes skipped" if self.late else ""
        return [f"{self.statement}  -- {rows}{late}" + ("" if self.is_own else f", of {self.owner}")]

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return {
            "id": self.id,
            "name": self.name,
            "owner": self.owner,
            "statement": self.statement,
            "rows": self.rows,
            "changes": self.changes,
            "tail": self.tail,
            "late": self.late,
            "last_change": self.last_change,
        }


@dataclass(frozen=True, slots=True)
class ShownRows(Answer):
    """The answer to `show rows`: the first rows by key, and the number of all that satisfy the condition."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    total: int
    sequence: int

    def render(self) -> Rendering:
        """Render the rows as a text table."""
        more = f", the first {len(self.rows):,} are shown" if len(self.rows) < self.total else ""
        rows = [{name: _plain(value) for name, value in row.values.items()} for row in self.rows]
        data = {"table": self.table, "sequence": self.sequence, "total": self.total, "rows": rows}
        noun = "row" if self.total == 1 else "rows"
        return Rendering(f"{self.table}: {self.total:,} {noun}{more}", data, tuple(self._lines()))

    def _lines(self) -> Iterator[str]:
        if not self.rows:
            return
        cells = [[_cell(row.values.get(name)) for name in self.columns] for row in self.rows]
        lines = [list(self.columns), *cells]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.columns))]
        for line in lines:
            yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _plain(value: Value) -> Any:
    """Return a value as JSON has it."""
    return value.isoformat() if isinstance(value, datetime) else value


def _cell(value: Value | None) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.15g}"
        case datetime():
            return value.isoformat()
        case text:
            line = " ".join(str(text).split())
            return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"


def show_tables(workspace: Workspace, actor: Actor) -> Listing[TableRow]:
    """List the tables that the actor may read."""
    with workspace.catalog.read() as connection:
        declared = [feed for feed in readable_feeds(connection, actor) if feed.kind is FeedKind.TABLE]
        by_id = tables_among(connection, [feed.id for feed in declared])
        owners = owner_names(connection)
    rows = tuple(_table_row(feed, by_id[feed.id], owners[feed.owner], feed.owner == actor.owner) for feed in declared)
    return Listing(f"{len(rows)} tables", "tables", rows)


def _table_row(feed: Feed, table: Table, owner: str, is_own: bool) -> TableRow:
    return TableRow(
        feed.id,
        feed.name,
        owner,
        feed.statement,
        table.rows,
        table.changes,
        table.tail,
        table.late,
        table.last_change,
        is_own,
    )


def show_rows(workspace: Workspace, statement: ShowRows, actor: Actor) -> ShownRows:
    """Show the rows of a table that satisfy a condition, sorted by key."""
    view = read_view(workspace, statement.table.text, actor)
    shown: list[Row] = []
    total = 0
    for row in matching_rows(workspace, view, statement):
        total += 1
        if len(shown) < SHOWN:
            shown.append(row)
    columns = tuple(column.name for column in view.schema.columns)
    return ShownRows(statement.table.text, columns, tuple(shown), total, view.sequence)


def read_view(workspace: Workspace, name: str, actor: Actor, sequence: int | None = None) -> TableView:
    """Return the rows of a table that the actor may read, sorted by key, as of a sequence."""
    with workspace.catalog.read() as connection:
        check_actor(connection, actor)
        feed = feed_named(connection, name, actor)
    if feed.kind is not FeedKind.TABLE:
        raise NotFoundError(f"{name} is a feed, not a table", hint="`show tables` lists all tables")
    return workspace.tables.view(feed.id, sequence).in_key_order()


def matching_rows(workspace: Workspace, view: TableView, statement: ShowRows) -> Iterator[Row]:
    """Return the rows that satisfy the condition of a statement. Times such as `2 days ago` are relative to now."""
    if statement.condition is None:
        return iter(view)
    _check_columns(statement, statement.condition, view.schema)
    with workspace.catalog.read() as connection:
        moment = datetime.fromtimestamp(now(connection) / 1e6, UTC)
    condition = statement.condition
    return (row for row in view if holds(condition, {name: (value,) for name, value in row.values.items()}, moment))


def _check_columns(statement: ShowRows, condition: Expression, schema: TableSchema) -> None:
    for atom in atoms_of(condition):
        attribute = getattr(atom, "attribute", WHOLE)
        if attribute.name not in schema.by_name and attribute.name != WHOLE.name:
            names = list(schema.by_name)
            raise UnknownNameError(
                f"{statement.table.text} has no column {attribute.name}",
                span=statement.span,
                hint=did_you_mean(attribute.name, names) or f"the columns are {', '.join(names)}",
            )
