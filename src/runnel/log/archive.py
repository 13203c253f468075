"""The archive: matched items by day of acceptance, in Parquet; and the removal of files that nobody needs.

Archiving replaces small log segments by day files in one transaction. Readers that still hold the old list go on,
because the old files stay for a while after they are retired.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby

import pyarrow as pa

from runnel.catalog import items as manifest
from runnel.catalog import leases, matches, plans
from runnel.catalog.connection import Catalog, now
from runnel.catalog.items import ItemSegment
from runnel.log.arrow_files import write_parquet
from runnel.log.item_files import read_items
from runnel.log.storage import Storage
from runnel.model.segment import Slice, Tier

_FILE_ITEMS = 200_000
_FILE_BYTES = 256 << 20


def archive_matched(catalog: Catalog, storage: Storage, *, epoch: int, at_least: int = 1) -> int:
    """Move log segments whose items are all matched into day files; gives how many segments moved."""
    with catalog.read() as connection:
        segments = manifest.log_segments_upto(connection, matches.matched_upto(connection))
    if len(segments) < at_least:
        return 0
    for run in _runs(segments):
        day = _day(run[0])
        batches = [
            read_items(storage, Slice(one.tier, one.path, 0, one.items, one.first_sequence, one.accepted)).records
            for one in run
        ]
        path = f"items/day/{day}/{run[0].first_sequence:020d}-{uuid.uuid4().hex[:8]}.parquet"
        size = write_parquet(storage, path, pa.Table.from_batches(batches))
        with catalog.write() as connection:
            leases.check(connection, epoch)
            manifest.retire_segments(connection, run)
            manifest.add_segment(
                connection,
                Tier.DAY,
                path,
                sequences=(run[0].first_sequence, run[-1].last_sequence),
                times=(run[0].accepted, run[-1].last_accepted),
                size=size,
            )
    return len(segments)


def _runs(segments: list[ItemSegment]) -> Iterator[list[ItemSegment]]:
    """Consecutive segments of one day, bounded in items."""
    for _, same_day in groupby(segments, key=_day):
        run: list[ItemSegment] = []
        items = size = 0
        for segment in same_day:
            gap = run and segment.first_sequence != run[-1].last_sequence + 1
            if run and (gap or items + segment.items > _FILE_ITEMS or size + segment.bytes > _FILE_BYTES):
                yield run
                run, items, size = [], 0, 0
            run.append(segment)
            items += segment.items
            size += segment.bytes
        if run:
            yield run


def _day(segment: ItemSegment) -> str:
    return datetime.fromtimestamp(segment.accepted / 1e6, UTC).date().isoformat()


def collect_garbage(catalog: Catalog, storage: Storage, *, older_than: float) -> int:
    """Remove files of retired segments, and files that no manifest names, of at least this age in seconds.

    A file without a row was left by a crash between writing and committing. A young one may still be committed; an
    old one is removed under the catalog's write lock, and whoever commits looks whether the file is still there.
    """
    limit = time.time() - older_than
    found = [file for folder in ("items", "matches", "plans") for file in storage.files(folder)]
    removed = 0
    with catalog.write() as connection:
        retired = set(manifest.retired_paths(connection, now(connection) - int(older_than * 1e6)))
        keep = (manifest.all_paths(connection) - retired) | matches.part_paths(connection)
        # A batch that was begun but not committed uses the plan of the last committed one, or a newer one.
        folders = plans.plan_folders(connection, since=matches.last_plan(connection))
        for file in found:
            is_plan = file.path.rsplit("/", 1)[0] in folders
            if file.path not in keep and not is_plan and (file.modified < limit or file.path in retired):
                storage.delete(file.path)
                removed += 1
        manifest.forget_segments(connection, retired)
    return removed
