"""The archive: matched items in Parquet files that cover minutes, then hours, then days of acceptance.

In: log segments whose items are all matched. Out: fewer and larger files, which replace the segments in one
transaction. Readers with the old list can continue, because retired files are deleted later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import match_segments
from runnel.catalog.logs.item_segments import ItemSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog, now
from runnel.errors import CorruptDataError, RunnelError
from runnel.logs.items.item_files import read_items
from runnel.logs.merge_tiers import Level, MergeRun, due_runs
from runnel.model.item_batch import ITEM_SCHEMA
from runnel.model.segment import Slice, Tier
from runnel.storage.arrow_files import write_parquet
from runnel.storage.file_storage import Storage

_SEGMENTS = 20_000
_ROWS = 5_000


def archive_steps(
    catalog: Catalog, storage: Storage, *, epoch: int, at_least: int = 1
) -> Iterator[MergeRun[ItemSegment]]:
    """Merge matched segments, one run per step. Yield each merged run."""
    with catalog.read() as connection:
        upto = match_segments.matched_upto(connection)
        segments = manifest.small_segments(connection, upto, _SEGMENTS)
        waiting = manifest.segments_between(
            connection, segments[-1].last_sequence if segments else 0, 1 << 62, limit=1
        )
        # Segments that are not read here, because they are unmatched or too many, keep their hour open.
        open_from = min(now(connection), *(segment.began for segment in waiting), 1 << 62)
    for run in due_runs(segments, open_from=open_from, at_least=at_least):
        if len(run.files) == 1 and run.files[0].level > Level.FRESH:
            with catalog.write() as connection:
                leases.check(connection, epoch)
                manifest.set_level(connection, run.files[0], run.level)
            continue
        _merge(catalog, storage, run, epoch)
        yield run


def _merge(catalog: Catalog, storage: Storage, run: MergeRun[ItemSegment], epoch: int) -> None:
    first, last = run.sequences
    day = datetime.fromtimestamp(run.files[0].accepted / 1e6, UTC).date().isoformat()
    path = f"items/day/{day}/{first:020d}-{uuid.uuid4().hex[:8]}.parquet"
    file = write_parquet(storage, path, _checked(_batches(storage, run), first, last), ITEM_SCHEMA)
    with catalog.write() as connection:
        leases.check(connection, epoch)
        if manifest.retire_segments(connection, run.files) != len(run.files) or not storage.local(file.path).exists():
            raise RunnelError(
                f"another process has archived items {first}-{last}", hint="the runner repeats this step later"
            )
        manifest.add_segment(
            connection,
            Tier.DAY,
            file.path,
            sequences=(first, last),
            times=(run.files[0].accepted, run.files[-1].last_accepted),
            size=file.size,
            level=run.level,
        )


def _batches(storage: Storage, run: MergeRun[ItemSegment]) -> Iterator[Any]:
    """Read the items of a run in batches of a few thousand."""
    for segment in run.files:
        for row in range(0, segment.items, _ROWS):
            rows = min(_ROWS, segment.items - row)
            yield read_items(
                storage, Slice(segment.tier, segment.path, row, rows, segment.first_sequence + row, segment.accepted)
            ).records


def _checked(batches: Iterator[Any], first: int, last: int) -> Iterator[Any]:
    """Yield the batches after checking that no item is missing, because the old files will be deleted."""
    expected = first
    for batch in batches:
        sequences = batch.column("sequence")
        if batch.num_rows and (sequences[0].as_py(), sequences[-1].as_py() - batch.num_rows + 1) != (expected,) * 2:
            raise CorruptDataError(f"the items from {expected} on are missing from the files that the manifest lists")
        expected += batch.num_rows
        yield batch
    if expected != last + 1:
        raise CorruptDataError(f"items {expected}-{last} are missing from the files that the manifest lists")
