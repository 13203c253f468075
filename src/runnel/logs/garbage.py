"""The removal of files that nobody needs.

Most of them are known: rows of retired files name them. A file that no row names was left by a crash; those are
looked for rarely, by walking over all files, and the catalog is not held meanwhile. Such a file is moved to the
trash, and only where the catalog knows the history of the workspace: to an older or a foreign catalog, good files
look like orphans.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection

from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import match_segments, plan_versions, quarantine
from runnel.catalog.store.connection import Catalog, chunks, now
from runnel.catalog.store.identity import History, read_history, read_identity
from runnel.storage.file_storage import Storage
from runnel.storage.workspace_marker import WorkspaceMarker, read_marker, write_marker

logger = logging.getLogger("runnel")

DATA_FOLDERS = ("items", "matches", "plans", "quarantine", "operators/cache")
"""The folders whose files the catalog names."""

TRASH = "trash"
_TRASH_SECONDS = 86_400.0
_STAMP = "%Y%m%dT%H%M%SZ"
_AT_ONCE = 1_000


def collect_garbage(catalog: Catalog, storage: Storage, *, older_than: float) -> int:
    """Remove all files of retired segments and all orphans of at least this age in seconds; gives how many."""
    return sum(retired_steps(catalog, storage, older_than=older_than)) + remove_orphans(
        catalog, storage, older_than=older_than
    )


def retired_steps(catalog: Catalog, storage: Storage, *, older_than: float) -> Iterator[int]:
    """Remove files that were retired so many seconds ago, some at each step; gives how many."""
    while True:
        with catalog.read() as connection:
            before = now(connection) - int(older_than * 1e6)
            items = manifest.retired_paths(connection, before, limit=_AT_ONCE)
            parts = match_segments.retired_parts(connection, before, limit=_AT_ONCE)
            answers = operator_cache.retired_paths(connection, before, limit=_AT_ONCE)
        files = [*items, *answers, *(path for one in parts for path in one if path)]
        if not files:
            return
        # The rows go last: whoever dies in between finds them again, and a file that is gone can be removed again.
        for path in files:
            storage.delete(path)
        with catalog.write() as connection:
            manifest.forget_segments(connection, items)
            match_segments.forget_parts(connection, [path for path, _ in parts])
            operator_cache.forget_segments(connection, answers)
        yield len(files)


def remove_orphans(catalog: Catalog, storage: Storage, *, older_than: float) -> int:
    """Move files that no manifest names, of at least this age in seconds, to the trash; gives how many.

    A young file may still be committed. An old one is moved under the catalog's write lock, after one more look
    at the manifests, and whoever commits looks whether the file is still there.
    """
    reason = unknown_history(catalog, storage)
    if reason is not None:
        logger.warning("orphaned files are kept: %s; see `runnel doctor`", reason)
        return 0
    files = [file for folder in DATA_FOLDERS for file in storage.files(folder)]
    limit = time.time() - older_than
    with catalog.read() as connection:
        orphans = _unnamed(connection, [file.path for file in files if file.modified < limit])
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
    for some in chunks(orphans):
        with catalog.write() as connection:
            for path in _unnamed(connection, some):
                storage.move(path, f"{trash}/{path}")
                logger.info("moved the orphan %s, which the catalog does not reference, to %s", path, trash)
                removed += 1
    return removed


def empty_trash(storage: Storage, *, older_than: float = _TRASH_SECONDS) -> int:
    """Delete files that were moved to the trash at least `older_than` seconds ago; returns how many."""
    limit = (datetime.now(UTC).timestamp()) - older_than
    removed = 0
    for file in list(storage.files(TRASH)):
        try:
            moved = datetime.strptime(file.path.split("/")[1], _STAMP).replace(tzinfo=UTC)
        except ValueError:
            continue  # not put there by us
        if moved.timestamp() < limit:
            storage.delete(file.path)
            removed += 1
    return removed


def unknown_history(catalog: Catalog, storage: Storage) -> str | None:
    """Why the catalog does not know the history of the workspace's files; None if it does."""
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
    """Note next to the files how far the workspace has come, so that an older catalog is recognized."""
    marker = read_marker(storage)
    with catalog.read() as connection:
        identity, history = read_identity(connection), read_history(connection)
    is_ours = marker is not None and marker.identity == identity
    if is_ours and marker is not None and history.includes(History(marker.sequence, marker.epoch)):
        write_marker(storage, WorkspaceMarker(marker.identity, history.sequence, history.epoch))


def _unnamed(connection: Connection, paths: Sequence[str]) -> list[str]:
    """Those of the files that nothing in the catalog names."""
    named = (
        manifest.all_paths(connection)
        | match_segments.part_paths(connection)
        | quarantine.quarantined_paths(connection)
    )
    named |= operator_cache.segment_paths(connection)
    folders = plan_versions.plan_folders(connection)
    return [path for path in paths if path not in named and path.rsplit("/", 1)[0] not in folders]
