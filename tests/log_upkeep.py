"""Upkeep of logs in one call: all that is due, which a runner does step by step between other work."""

from __future__ import annotations

from collections.abc import Collection

from runnel.catalog.store.connection import Catalog
from runnel.logs.garbage import delete_retired_files, remove_orphans
from runnel.logs.items.archive import archive_steps
from runnel.logs.matches.compaction import compaction_steps
from runnel.storage.file_storage import Storage


def collect_garbage(catalog: Catalog, storage: Storage, *, older_than: float) -> int:
    """Remove the files of retired segments and the orphans of at least this age in seconds; gives their number."""
    retired = sum(delete_retired_files(catalog, storage, older_than=older_than))
    return retired + remove_orphans(catalog, storage, older_than=older_than)


def archive_matched(catalog: Catalog, storage: Storage, *, epoch: int, at_least: int = 1) -> int:
    """Merge matched segments; gives the number of segments that were merged into others."""
    return sum(len(run.files) for run in archive_steps(catalog, storage, epoch=epoch, at_least=at_least))


def compact_matches(
    catalog: Catalog, storage: Storage, *, epoch: int, at_least: int = 1, asked: Collection[int] = ()
) -> int:
    """Merge parts of the match log; gives the number of parts that were merged into others."""
    steps = compaction_steps(catalog, storage, epoch=epoch, at_least=at_least, asked=asked)
    return sum(len(run.files) for run in steps)
