"""Register, extend and drop tables.

In: statements, and an open transaction. Out: rows of the catalog. A table is a feed of the kind `table`.
"""

from __future__ import annotations

from collections.abc import Callable

from runnel.catalog.declared import feeds, tables
from runnel.catalog.declared.bulk_insert import NewFeed
from runnel.engine.answers import Dropped, FeedDone, listed
from runnel.engine.declare.scope import DeclarationScope
from runnel.errors import CorruptDataError, Span, StatementError
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import ColumnClause, DropTable, RegisterTable
from runnel.model.feed import Feed, FeedKind
from runnel.model.table import Column, TableSchema

_HINT = "columns can only be added; for other changes, drop the table and register it again"

DropFeeds = Callable[[set[int]], tuple[list[str], list[int]]]
"""Drops feeds, and returns their names and the numbers of the subscriptions that ended."""


def register(scope: DeclarationScope, statement: RegisterTable) -> FeedDone:
    """Register a table, or replace the options of a registered one and add columns to it."""
    name = statement.name.text
    existing = scope.own_or_none(name)
    if existing is not None and existing.kind is FeedKind.TABLE:
        return _extend(scope, statement, existing)
    scope.refuse_duplicate(statement.name)
    scope.allowance.take("queries")
    feed = scope.pending.feed_id()
    text = print_statement(statement)
    scope.add(NewFeed(feed, name, FeedKind.TABLE, text, owner=scope.actor.owner))
    scope.write_pending()
    tables.add_table(scope.connection, feed, statement.schema, scope.sequence)
    return FeedDone(f"registered table {name}", name, feed)


def _extend(scope: DeclarationScope, statement: RegisterTable, feed: Feed) -> FeedDone:
    table = tables.table_of(scope.connection, feed.id)
    if table is None:
        raise CorruptDataError(f"the catalog has no columns of the table {feed.name}", hint="restore a backup")
    _refuse_changes(statement, table.schema)
    added = [column.name for column in statement.schema.columns if column.name not in table.schema.by_name]
    feeds.set_statement(scope.connection, feed, print_statement(statement))
    tables.set_schema(scope.connection, feed.id, statement.schema)
    scope.forget_feed(feed.name)
    summary = f"added {listed('column', added)} to table {feed.name}" if added else f"updated table {feed.name}"
    return FeedDone(summary, feed.name, feed.id)


def _refuse_changes(statement: RegisterTable, before: TableSchema) -> None:
    """Raise StatementError if the statement removes or changes a column, the key or the order of changes."""
    clauses = {column.name.text: column for column in statement.columns}
    for column in before.columns:
        clause = clauses.get(column.name)
        if clause is None:
            raise _refusal(f"the column {column.name} cannot be removed from table {statement.name.text}", statement)
        _refuse_other_column(column, clause)
    for clause in statement.columns:
        if clause.is_key and clause.name.text not in before.by_name:
            raise _refusal(f"the new column {clause.name.text} cannot be part of the key", clause)
    if [column.name for column in before.key] != [column.name for column in statement.schema.key]:
        raise _refusal("the order of the key columns cannot be changed", statement)
    if statement.schema.ordered_by != before.ordered_by:
        was = "without it" if before.ordered_by is None else f"with `ordered by {before.ordered_by}`"
        span = statement.name.span if statement.ordered_by is None else statement.ordered_by.span
        raise _refusal(f"`ordered by` cannot be changed: the table was registered {was}", span)


def _refuse_other_column(before: Column, clause: ColumnClause) -> None:
    if clause.type is not before.type:
        raise _refusal(f"the column {before.name} has the type {before.type.value}, which cannot be changed", clause)
    if clause.is_key is not before.is_key:
        is_key = "is" if before.is_key else "is not"
        raise _refusal(f"the column {before.name} {is_key} part of the key, which cannot be changed", clause)


def _refusal(message: str, at: RegisterTable | ColumnClause | Span) -> StatementError:
    return StatementError(message, span=at if isinstance(at, Span) else at.name.span, hint=_HINT)


def drop(scope: DeclarationScope, statement: DropTable, drop_feeds: DropFeeds) -> Dropped:
    """Drop a table with its rows."""
    feed = scope.find_own_table(statement.name)
    _, ended = drop_feeds({feed.id})
    tables.forget_table(scope.connection, feed.id)
    return Dropped(f"dropped table {feed.name}", ended, [feed.name])
