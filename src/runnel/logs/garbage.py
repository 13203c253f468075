"""Garbage collection: delete files that the catalog no longer references.

Retired files are listed in the catalog and are deleted in batches. Orphans, files that a crash left behind and no row
references, can be found only by listing all files. That scan runs rarely and does not lock the catalog. Orphans are
moved to the trash, and only if the catalog knows the history of the workspace: for an older or foreign catalog,
needed files look like orphans.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection

from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import match_segments, plan_versions, quarantine, table_files, windows
from runnel.catalog.store.connection import Catalog, chunks, now
from runnel.catalog.store.identity import History, read_history, read_identity
from runnel.storage.file_storage import Storage
from runnel.storage.workspace_marker import WorkspaceMarker, read_marker, write_marker

logger = logging.getLogger("runnel")

DATA_FOLDERS = ("items", "matches", "windows", "tables", "plans", "quarantine", "operators/cache")
"""The folders whose files the catalog references."""

TRASH = "trash"
_TRASH_SECONDS = 86_400.0
_STAMP = "%Y%m%dT%H%M%SZ"
_BATCH_SIZE = 1_000


def delete_retired_files(catalog: Catalog, storage: Storage, *, older_than: float) -> Iterator[int]:
    """Delete files that were retired at least `older_than` seconds ago, in batches. Yield the size of each batch."""
    while True:
        with catalog.read() as connection:
            retired_before = now(connection) - int(older_than * 1e6)
            segments = manifest.retired_paths(connection, retired_before, limit=_BATCH_SIZE)
            parts = match_segments.retired_parts(connection, retired_before, limit=_BATCH_SIZE)
            answers = operator_cache.retired_paths(connection, retired_before, limit=_BATCH_SIZE)
            window_files = windows.retired_paths(connection, retired_before, limit=_BATCH_SIZE)
            of_tables = table_files.retired_paths(connection, retired_before, limit=_BATCH_SIZE)
        files = [*segments, *answers, *window_files, *of_tables, *(path for part in parts for path in part if path)]
        if not files:
            return
        # Delete the files before their rows. After a crash in between, the rows are still there and the next run
        # repeats the batch; deleting a file that is already gone has no effect.
        for path in files:
            storage.delete(path)
        with catalog.write() as connection:
            manifest.forget_segments(connection, segments)
            match_segments.forget_parts(connection, [path for path, _ in parts])
            operator_cache.forget_segments(connection, answers)
            windows.forget_segments(connection, window_files)
            table_files.forget_files(connection, of_tables)
        yield len(files)


def remove_orphans(catalog: Catalog, storage: Storage, *, older_than: float) -> int:
    """Move unreferenced files that are at least `older_than` seconds old to the trash. Return their number.

    A younger file may belong to a commit in progress. An old file is checked again and moved under the catalog's
    write lock, and every commit verifies that its files still exist, so a slow commit cannot lose data silently.
    """
    reason = unknown_history(catalog, storage)
    if reason is not None:
        logger.warning("orphaned files are kept: %s; see `runnel doctor`", reason)
        return 0
    files = [file for folder in DATA_FOLDERS for file in storage.files(folder)]
    limit = time.time() - older_than
    with catalog.read() as connection:
        orphans = _unreferenced(connection, [file.path for file in files if file.modified < limit])
    if 2 * len(orphans) > len(files):
        logger.warning(
            "%d of %d data files, such as %s, are not referenced by the catalog. They are kept, because the runner "
            "never removes more than half of all files. If they are not needed, delete them by hand",
            len(orphans),
            len(files),
            orphans[0],
        )
        return 0
    removed = 0
    trash = f"{TRASH}/{datetime.now(UTC).strftime(_STAMP)}"
    for chunk in chunks(orphans):
        with catalog.write() as connection:
            for path in _unreferenced(connection, chunk):
                storage.move(path, f"{trash}/{path}")
                logger.info("moved the orphan %s, which the catalog does not reference, to %s", path, trash)
                removed += 1
    return removed


def empty_trash(storage: Storage, *, older_than: float = _TRASH_SECONDS) -> int:
    """Delete files that were moved to the trash at least `older_than` seconds ago. Return their number."""
    limit = (datetime.now(UTC).timestamp()) - older_than
    removed = 0
    for file in list(storage.files(TRASH)):
        try:
            moved = datetime.strptime(file.path.split("/")[1], _STAMP).replace(tzinfo=UTC)
        except ValueError:
            continue  # not a folder of this module
        if moved.timestamp() < limit:
            storage.delete(file.path)
            removed += 1
    return removed


def unknown_history(catalog: Catalog, storage: Storage) -> str | None:
    """Return why the catalog does not know the history of the workspace's files, or None if it does."""
    marker = read_marker(storage)
    with catalog.read() as connection:
        identity, history = read_identity(connection), read_history(connection)
    if marker is None or marker.identity != identity:
        return f"the catalog {catalog.shown} does not belong to the files in {storage.url}"
    if not history.includes(History(marker.sequence, marker.epoch)):
        return (
            f"the catalog {catalog.shown} is older than the files: it ends at item {history.sequence}, and the files "
            f"at item {marker.sequence} or later"
        )
    return None


def record_history(catalog: Catalog, storage: Storage) -> None:
    """Record next to the files how far the workspace has progressed, so that an older catalog is detected."""
    marker = read_marker(storage)
    with catalog.read() as connection:
        identity, history = read_identity(connection), read_history(connection)
    is_ours = marker is not None and marker.identity == identity
    if is_ours and marker is not None and history.includes(History(marker.sequence, marker.epoch)):
        write_marker(storage, WorkspaceMarker(marker.identity, history.sequence, history.epoch))


def _unreferenced(connection: Connection, paths: Sequence[str]) -> list[str]:
    """Return the paths that nothing in the catalog references."""
    named = (
        manifest.all_paths(connection)
        | match_segments.part_paths(connection)
        | quarantine.quarantined_paths(connection)
    )
    named |= operator_cache.segment_paths(connection) | windows.segment_paths(connection)
    named |= table_files.all_paths(connection)
    folders = plan_versions.plan_folders(connection)
    return [path for path in paths if path not in named and path.rsplit("/", 1)[0] not in folders]
