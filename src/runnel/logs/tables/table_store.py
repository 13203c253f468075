"""The rows of tables as of any kept sequence.

The newest base file has all rows at a sequence. The tail, the changes after it, comes from the item log and is kept
in memory as long as the base is the newest. Rows that ended before the base are in histories.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from runnel.catalog.declared.tables import Table, table_of
from runnel.catalog.logs import table_files
from runnel.catalog.logs.table_files import FileKind, TableFile
from runnel.catalog.store.connection import Catalog
from runnel.errors import CorruptDataError, NotFoundError
from runnel.logs.items.item_log import ItemLog
from runnel.logs.tables.table_rows import (
    ACCEPTED,
    ENDED,
    SEQUENCE,
    VERSION,
    apply_changes,
    change_schema,
    changes_of,
    conform,
    history_schema,
    id_column,
    row_schema,
)
from runnel.model.item import Value
from runnel.model.table import ColumnType, TableSchema
from runnel.storage.arrow_files import read_arrow
from runnel.storage.file_storage import Storage

_ATTEMPTS = 5
_ROWS = 5_000
_CHUNKS = 64
"""Number of chunks from which the changes of a tail are joined into one."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row: the id of its items, the sequence and version of its newest change, and its values by column.

    Columns without a value are left out.
    """

    id: str
    sequence: int
    version: int
    values: dict[str, Value]


@dataclass(frozen=True)
class TableView:
    """The rows of a table as of a sequence. `rows` is an Arrow table with the columns of `table_rows`."""

    schema: TableSchema
    sequence: int
    rows: Any

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        names, ids = [column.name for column in self.schema.columns], id_column(self.schema)
        dates = {column.name for column in self.schema.columns if column.type is ColumnType.DATE}
        for batch in self.rows.to_batches(max_chunksize=_ROWS):
            for row in batch.to_pylist():
                values = {name: row[name] for name in names if row[name] is not None}
                values |= {name: values[name].astimezone(UTC) for name in dates & values.keys()}
                yield Row(row[ids], row[SEQUENCE], row[VERSION], values)

    def in_key_order(self) -> TableView:
        """Return the view with its rows sorted by key."""
        order = [(column.name, "ascending") for column in self.schema.key]
        return TableView(self.schema, self.sequence, self.rows.sort_by(order))

    def parts(self, rows: int) -> Iterator[TableView]:
        """Return views of at most `rows` rows that together have all rows."""
        for start in range(0, len(self.rows), rows):
            yield TableView(self.schema, self.sequence, self.rows.slice(start, rows))

    def changed_before(self, moment: datetime) -> TableView:
        """Return the rows whose newest change was accepted before a time."""
        is_old = pc.less(self.rows.column(ACCEPTED), pa.scalar(moment, pa.timestamp("us", tz="UTC")))
        return TableView(self.schema, self.sequence, self.rows.filter(is_old))


@dataclass(frozen=True)
class TableFiles:
    """A table, its newest base if there is one, and its histories in order."""

    table: Table
    base: TableFile | None
    histories: tuple[TableFile, ...]

    @property
    def base_sequence(self) -> int:
        """The sequence of the base. A table without a base is empty when it is registered."""
        return self.table.since if self.base is None else self.base.to_sequence

    def histories_from(self, sequence: int) -> list[TableFile] | None:
        """Return the histories with all rows that ended after a sequence. Return None if some are no longer kept."""
        chosen: list[TableFile] = []
        start = self.base_sequence
        for file in reversed(self.histories):
            if start <= sequence:
                break
            if file.to_sequence != start:
                return None
            chosen.append(file)
            start = file.from_sequence
        return chosen if start <= sequence else None


@dataclass(frozen=True)
class _Tail:
    """The changes of a table after the base at `base_path`, up to a sequence. `schema` is that of the changes."""

    base_path: str | None
    schema: TableSchema
    upto: int
    changes: Any


class TableStore:
    """Reads the rows of tables."""

    def __init__(self, catalog: Catalog, storage: Storage, items: ItemLog) -> None:
        self._catalog = catalog
        self._storage = storage
        self._items = items
        self._tails: dict[int, _Tail] = {}
        self._oldest: dict[int, datetime] = {}
        """Times before which no row of a table was changed last."""

    def files(self, feed: int) -> TableFiles:
        """Return a table with its live files. Raise NotFoundError if it was dropped."""
        with self._catalog.read() as connection:
            table = table_of(connection, feed)
            files = table_files.live_files(connection, feed)
        if table is None:
            self._tails.pop(feed, None)
            raise NotFoundError("the table was dropped", hint="`show tables` lists all tables")
        bases = [file for file in files if file.kind is FileKind.BASE]
        histories = tuple(file for file in files if file.kind is FileKind.HISTORY)
        return TableFiles(table, bases[-1] if bases else None, histories)

    def view(self, feed: int, sequence: int | None = None) -> TableView:
        """Return the rows as of a sequence, by default that of the last change.

        Raise NotFoundError if the rows as of the sequence are no longer kept.
        """
        for attempt in range(_ATTEMPTS):
            files = self.files(feed)
            try:
                return self.view_of(files, files.table.last_change if sequence is None else sequence)
            except CorruptDataError:
                # The files may have been replaced and deleted in the meantime.
                if attempt + 1 == _ATTEMPTS or self.files(feed) == files:
                    raise
        raise AssertionError("unreachable")

    def changed_before(self, feed: int, moment: datetime) -> TableView | None:
        """Return the rows whose newest change was accepted before a time, or None if there are none.

        The result of an earlier call tells when the oldest row is due; until then, rows are not read again.
        """
        if feed in self._oldest and moment <= self._oldest[feed]:
            return None
        view = self.view(feed)
        old = view.changed_before(moment)
        if len(old):
            return old
        self._oldest[feed] = pc.min(view.rows.column(ACCEPTED)).as_py() if len(view) else moment
        return None

    def view_of(self, files: TableFiles, sequence: int) -> TableView:
        """Return the rows as of a sequence, read from these files and the item log."""
        schema = files.table.schema
        if sequence < files.base_sequence:
            return TableView(schema, sequence, self._past_rows(files, sequence))
        rows = self.base_rows(files)
        changes = self.changes(files, sequence)
        return TableView(schema, sequence, apply_changes(rows, changes, schema))

    def base_rows(self, files: TableFiles) -> Any:
        """Map the rows of the newest base."""
        wanted = row_schema(files.table.schema)
        if files.base is None:
            return wanted.empty_table()
        return conform(read_arrow(self._storage, files.base.path), wanted)

    def changes(self, files: TableFiles, upto: int) -> Any:
        """Return the changes after the base up to a sequence, in order. Further changes are read only once."""
        tail = self._read_tail(files, min(upto, files.table.last_change))
        if tail.upto <= upto:
            return tail.changes
        return tail.changes.filter(pc.less_equal(tail.changes.column(SEQUENCE), upto))

    def _read_tail(self, files: TableFiles, upto: int) -> _Tail:
        table = files.table
        base_path = None if files.base is None else files.base.path
        tail = self._tails.get(table.feed)
        if tail is None or tail.base_path != base_path or tail.schema != table.schema:
            tail = _Tail(base_path, table.schema, files.base_sequence, change_schema(table.schema).empty_table())
        if tail.upto < upto:
            batches = self._items.read_feed(table.feed, tail.upto, upto)
            further = [changes_of(batch, table.schema) for batch in batches]
            changes = pa.concat_tables([tail.changes, *further])
            if changes.column(SEQUENCE).num_chunks > _CHUNKS:
                changes = changes.combine_chunks()
            tail = _Tail(base_path, table.schema, upto, changes)
            self._tails[table.feed] = tail
        return tail

    def _past_rows(self, files: TableFiles, sequence: int) -> Any:
        """Return the rows as of a sequence before the base: its older rows, and rows that ended afterwards."""
        histories = None if sequence < files.table.since else files.histories_from(sequence)
        if histories is None:
            raise NotFoundError(
                f"the rows of the table as of sequence {sequence} are not kept",
                hint="the setting keep_items_days determines how long former versions of rows are kept",
            )
        rows = self.base_rows(files)
        parts = [rows.filter(pc.less_equal(rows.column(SEQUENCE), sequence))]
        wanted = history_schema(files.table.schema)
        for file in histories:
            ended = conform(read_arrow(self._storage, file.path), wanted)
            was_live = pc.and_(
                pc.less_equal(ended.column(SEQUENCE), sequence), pc.greater(ended.column(ENDED), sequence)
            )
            parts.append(ended.filter(was_live).select(rows.column_names))
        return pa.concat_tables(parts)
