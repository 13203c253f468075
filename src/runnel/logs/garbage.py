"""The removal of files that nobody needs.

Most of them are known: rows of retired files name them. A file that no row names was left by a crash; those are
looked for rarely, by walking over all files, and the catalog is not held meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import match_segments, plan_versions, quarantine
from runnel.catalog.store.connection import Catalog, chunks, now
from runnel.storage.file_storage import Storage

_FOLDERS = ("items", "matches", "plans", "quarantine", "operators/cache")
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
    """Remove files that no manifest names, of at least this age in seconds; gives how many.

    A young file may still be committed. An old one is removed under the catalog's write lock, after one more look
    at the manifests, and whoever commits looks whether the file is still there.
    """
    limit = time.time() - older_than
    found = [file.path for folder in _FOLDERS for file in storage.files(folder) if file.modified < limit]
    with catalog.read() as connection:
        orphans = _unnamed(connection, found)
    removed = 0
    for some in chunks(orphans):
        with catalog.write() as connection:
            for path in _unnamed(connection, some):
                storage.delete(path)
                removed += 1
    return removed


def _unnamed(connection: Connection, paths: Sequence[str]) -> list[str]:
    """Those of the files that nothing in the catalog names."""
    named = (
        manifest.all_paths(connection)
        | match_segments.part_paths(connection)
        | quarantine.quarantined_paths(connection)
    )
    named |= operator_cache.segment_paths(connection)
    # A batch that was begun but not committed uses the plan of the last committed one, or a newer one.
    folders = plan_versions.plan_folders(connection, since=match_segments.last_plan(connection))
    return [path for path in paths if path not in named and path.rsplit("/", 1)[0] not in folders]
