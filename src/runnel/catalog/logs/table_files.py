"""The files of tables in the catalog: bases with all rows at a sequence, and histories with the rows that ended.

All of them can be computed from the item log as long as it is kept. A history with the range (from, to] has the rows
that ended in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now

_f, _t = schema.table_files.c, schema.tables.c


class FileKind(StrEnum):
    """What a file of a table has: all rows at one sequence, or the rows that ended in a range."""

    BASE = "base"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table. A base contains the rows at `to_sequence`; the base before it ends at `from_sequence`."""

    path: str
    feed: int
    kind: FileKind
    from_sequence: int
    to_sequence: int
    rows: int
    bytes: int


def live_files(connection: Connection, feed: int | None = None) -> list[TableFile]:
    """Return the files of a table, or of all tables, in order of their sequences."""
    query = select(schema.table_files).where(_f.retired.is_(None)).order_by(_f.feed, _f.to_sequence, _f.kind)
    if feed is not None:
        query = query.where(_f.feed == feed)
    return [_file(row) for row in connection.execute(query)]


def file_of(connection: Connection, path: str) -> TableFile | None:
    """Return the live file with this path, or None."""
    row = connection.execute(select(schema.table_files).where(_f.path == path, _f.retired.is_(None))).one_or_none()
    return None if row is None else _file(row)


def retired_base(connection: Connection, feed: int, sequence: int) -> TableFile | None:
    """Return the retired base of a table at a sequence whose file was not deleted yet, or None."""
    query = select(schema.table_files).where(
        _f.feed == feed, _f.kind == FileKind.BASE.value, _f.to_sequence == sequence, _f.retired.is_not(None)
    )
    row = connection.execute(query.order_by(_f.retired.desc()).limit(1)).one_or_none()
    return None if row is None else _file(row)


def add_files(connection: Connection, files: Iterable[TableFile]) -> None:
    """Add written files."""
    rows = [asdict(file) | {"kind": file.kind.value} for file in files]
    if rows:
        connection.execute(insert(schema.table_files), rows)


def retire_files(connection: Connection, paths: Collection[str]) -> int:
    """Retire files, which are deleted later. Return the number of those that were live."""
    time, retired = now(connection), 0
    for chunk in chunks(sorted(paths)):
        statement = update(schema.table_files).where(_f.path.in_(chunk), _f.retired.is_(None)).values(retired=time)
        retired += connection.execute(statement).rowcount
    return retired


def retire_histories(connection: Connection, upto: int) -> int:
    """Retire the histories of rows that ended at or before a sequence. Return their number."""
    old = (_f.kind == FileKind.HISTORY.value, _f.to_sequence <= upto, _f.retired.is_(None))
    return connection.execute(update(schema.table_files).where(*old).values(retired=now(connection))).rowcount


def needed_after(connection: Connection, upto: int) -> int:
    """Return the sequence, at most `upto`, after which tables need the item log: that of the oldest base in use.

    A table without a base needs its changes since its registration. A table whose base has all changes needs none.
    """
    bases = {file.feed: file.to_sequence for file in live_files(connection) if file.kind is FileKind.BASE}
    tables = connection.execute(select(_t.feed, _t.since, _t.last_change))
    read_after = [(int(bases.get(row.feed, row.since)), int(row.last_change)) for row in tables]
    return min([upto, *(after for after, last_change in read_after if after < last_change)])


def retired_paths(connection: Connection, before: int, *, limit: int | None = None) -> list[str]:
    """Return the files that were retired at or before a time."""
    return [row.path for row in connection.execute(select(_f.path).where(_f.retired <= before).limit(limit))]


def forget_files(connection: Connection, paths: Collection[str]) -> None:
    """Delete the rows of retired files that are gone."""
    for chunk in chunks(sorted(paths)):
        connection.execute(delete(schema.table_files).where(_f.path.in_(chunk), _f.retired.is_not(None)))


def all_paths(connection: Connection) -> set[str]:
    """Return all files, including retired ones."""
    return {row.path for row in connection.execute(select(_f.path))}


def _file(row: Any) -> TableFile:
    return TableFile(row.path, row.feed, FileKind(row.kind), row.from_sequence, row.to_sequence, row.rows, row.bytes)
