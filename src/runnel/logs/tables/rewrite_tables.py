"""Rewriting of tables: write the next base, and the rows replaced or deleted since the last one as a history.

In: tables with many changes after their base. Out: new files, which the catalog lists in one transaction. A crash
leaves the old base with the longer tail, and files that no row references.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from runnel.catalog.declared import tables
from runnel.catalog.logs import item_segments, table_files
from runnel.catalog.logs.table_files import FileKind, TableFile
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.errors import CorruptDataError, NotFoundError
from runnel.logs.tables.table_rows import apply_changes, ended_rows
from runnel.logs.tables.table_store import TableFiles, TableStore
from runnel.storage.arrow_files import write_arrow
from runnel.storage.checksums import check_file
from runnel.storage.file_storage import Storage

logger = logging.getLogger("runnel")

FOLDER = "tables"
MIN_TAIL = 10_000
_BASE_SHARE = 4
"""A base is rewritten when its tail has more than a quarter of its rows, but at least `MIN_TAIL` changes."""


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """When tables are rewritten: at more than `tail_rows` changes, or if the base is older than `kept_after`.

    Items after the oldest base are kept, so a base that is never rewritten would prevent their deletion.
    """

    tail_rows: int
    kept_after: int = 0

    def is_due(self, files: TableFiles) -> bool:
        """Return whether a table must be rewritten."""
        tail = files.table.tail
        share = (0 if files.base is None else files.base.rows) // _BASE_SHARE
        is_long = tail > min(max(MIN_TAIL, share), self.tail_rows)
        return is_long or (tail > 0 and files.base_sequence < self.kept_after)


def rewrite_steps(
    catalog: Catalog, storage: Storage, store: TableStore, rule: RewriteRule, *, epoch: int
) -> Iterator[int]:
    """Rewrite the tables that are due, one per step. Yield 1 for each."""
    with catalog.read() as connection:
        feeds = [table.feed for table in tables.all_tables(connection) if table.tail]
    for feed in feeds:
        try:
            files = store.files(feed)
            if rule.is_due(files) and rewrite_table(catalog, storage, store, files, epoch=epoch):
                yield 1
        except NotFoundError:
            continue  # it was dropped
        except CorruptDataError as error:
            logger.error("the table with the id %d cannot be rewritten: %s", feed, error)


def rewrite_table(catalog: Catalog, storage: Storage, store: TableStore, files: TableFiles, *, epoch: int) -> bool:
    """Write the next base of a table and its history. Return False if the table was changed otherwise meanwhile."""
    table, upto = files.table, files.table.last_change
    rows = store.base_rows(files)
    changes = store.changes(files, upto)
    ended = ended_rows(rows, changes, table.schema)
    history = _write(storage, table.feed, FileKind.HISTORY, files.base_sequence, upto, ended)
    rows = apply_changes(rows, changes, table.schema)
    base = _write(storage, table.feed, FileKind.BASE, files.base_sequence, upto, rows)
    with catalog.write() as connection:
        leases.check(connection, epoch)
        is_current = _newest_base(table_files.live_files(connection, table.feed)) == files.base
        if tables.table_of(connection, table.feed) is None or not is_current:
            return False
        if not all(storage.local(file.path).exists() for file in (base, history)):
            return False  # writing took so long that the files were removed as orphans
        table_files.add_files(connection, [history, base])
        if files.base is not None:
            table_files.retire_files(connection, [files.base.path])
        tables.subtract_tail(connection, table.feed, table.tail)
    return True


def rebuild_base(
    catalog: Catalog, storage: Storage, store: TableStore, damaged: TableFile, *, epoch: int
) -> TableFile | None:
    """Replace a damaged base by one that is computed from the base before it, or from all changes of the table.

    Return the new file, or None if neither the base before it nor all changes are kept.
    """
    files = store.files(damaged.feed)
    with catalog.read() as connection:
        retained = item_segments.retained_upto(connection)
        earlier = table_files.retired_base(connection, damaged.feed, damaged.from_sequence)
    start = damaged.from_sequence if earlier is not None and _is_sound(storage, earlier) else files.table.since
    if start < retained:
        return None
    before = replace(files, base=earlier if start > files.table.since else None)
    rows = store.view_of(before, damaged.to_sequence).rows
    base = _write(storage, damaged.feed, FileKind.BASE, damaged.from_sequence, damaged.to_sequence, rows)
    with catalog.write() as connection:
        leases.check(connection, epoch)
        if table_files.retire_files(connection, [damaged.path]):
            table_files.add_files(connection, [base])
    return base


def _newest_base(files: list[TableFile]) -> TableFile | None:
    bases = [file for file in files if file.kind is FileKind.BASE]
    return bases[-1] if bases else None


def _write(storage: Storage, feed: int, kind: FileKind, start: int, end: int, rows: Any) -> TableFile:
    path = f"{FOLDER}/{feed}/{kind.value}-{end:020d}-{uuid.uuid4().hex}.arrow"
    file = write_arrow(storage, path, rows.combine_chunks().to_batches(), rows.schema)
    return TableFile(file.path, feed, kind, start, end, len(rows), file.size)


def _is_sound(storage: Storage, file: TableFile) -> bool:
    try:
        check_file(storage, file.path, again=True)
    except CorruptDataError:
        return False
    return True
