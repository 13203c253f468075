"""Compaction of the match log: merge one file per batch and task into files that cover minutes, hours and days.

In: committed parts, several of which may be layers of the same items. Out: larger parts without layers, which replace
them in one transaction. Each hour and day also gets an index by query, for the queries that are read by query.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import KeptPart
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog, now
from runnel.errors import RunnelError
from runnel.logs.matches.match_files import MatchRows, joined, read_part, repeats_items, write_rows
from runnel.logs.matches.query_index import write_index
from runnel.logs.merge_tiers import Level, MergeRun, due_runs
from runnel.storage.file_storage import Storage

_PARTS = 20_000


def compaction_steps(
    catalog: Catalog,
    storage: Storage,
    *,
    epoch: int,
    at_least: int = 1,
    asked: Collection[int] = (),
    silent: Collection[str] = (),
) -> Iterator[MergeRun[KeptPart]]:
    """Merge parts, one run per step. Yield each merged run.

    Queries in `asked` are indexed in addition to those of subscriptions that are read by query, such as those of the
    `silent` kinds.
    """
    with catalog.read() as connection:
        parts = match_segments.small_parts(connection, _PARTS)
        open_from = parts[-1].began if len(parts) >= _PARTS else now(connection)
        runs = list(due_runs(parts, open_from=open_from, at_least=at_least))
        indexed = {*asked, *match_segments.read_queries(connection, silent)} if runs else set()
    for run in runs:
        if len(run.files) == 1 and not _is_layered(storage, run.files[0]):
            _promote(catalog, storage, run, epoch, indexed)
        else:
            _merge(catalog, storage, run, epoch, indexed)
            yield run


def _merge(catalog: Catalog, storage: Storage, run: MergeRun[KeptPart], epoch: int, indexed: Collection[int]) -> None:
    rows = joined([read_part(storage, part.path).matched() for part in run.files])
    path = _path(run)
    part = write_rows(storage, path, rows, run.sequences)
    by_query = _index(storage, run, rows, path, indexed)
    with catalog.write() as connection:
        leases.check(connection, epoch)
        files_exist = all(storage.local(path).exists() for path in (part.path, by_query) if path)
        if not files_exist or not match_segments.replace_parts(connection, run.files, part, run.level, by_query):
            raise RunnelError(
                f"another process has merged the matches of items {part.first_sequence}-{part.last_sequence}",
                hint="the runner repeats this step later",
            )


def _is_layered(storage: Storage, part: KeptPart) -> bool:
    """Return whether a part contains layers. Merged parts contain none."""
    return part.level == Level.FRESH and repeats_items(storage, part.path)


def _promote(
    catalog: Catalog, storage: Storage, run: MergeRun[KeptPart], epoch: int, indexed: Collection[int]
) -> None:
    """Raise the level of a part without neighbors to merge with, and write its index if it is missing."""
    (part,) = run.files
    by_query = part.by_query
    if by_query is None:
        rows = read_part(storage, part.path)
        by_query = _index(storage, run, rows, _path(run), indexed)
    with catalog.write() as connection:
        leases.check(connection, epoch)
        match_segments.set_level(connection, part, run.level, by_query)


def _index(
    storage: Storage, run: MergeRun[KeptPart], rows: MatchRows, path: str, indexed: Collection[int]
) -> str | None:
    """Write the index of a part if the part is permanent and a query needs it."""
    if run.level < Level.HOUR or not indexed or not len(rows.queries):
        return None
    return write_index(storage, path.replace(".arrow", ".queries.arrow"), rows, indexed)


def _path(run: MergeRun[KeptPart]) -> str:
    day = datetime.fromtimestamp(run.files[0].committed / 1e6, UTC).date().isoformat()
    return f"matches/day/{day}/{run.sequences[0]:020d}-{uuid.uuid4().hex[:8]}.arrow"
