"""Whether the queries of a plan are divided over workers, and into what: decided, made and published.

In: the settings, a base as it was written, and what the stream has taught. Out: a partitioning beside the base, and a
plan version that names it. A base is as good without one; only workers have to map more. So nobody who declares
waits for a large base to be divided: the runner does that, when it starts and whenever it finds a base undivided.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.arrays import Array
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.catalog.store import leases
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.plan.store import load_part, new_folder, read_manifest, read_part, verify
from runnel.scaleout.divide.choose_partitions import PartitionChoice, choose_partitions
from runnel.scaleout.divide.make_partitioning import make_partitioning
from runnel.scaleout.partitioning import Partitioning, read_partitioning
from runnel.scaleout.planning.stream_knowledge import StreamKnowledge, read_stream_knowledge
from runnel.settings import Settings

logger = logging.getLogger("runnel")

AT_ONCE = 1_000
"""Queries up to which a base is divided in the transaction that publishes it; that takes some tenths of a second."""


@dataclass(frozen=True, slots=True)
class PartitioningResult:
    """What became of the queries: the version that was published, into how many partitions, and why."""

    version: int
    partitions: int
    reason: str


def wanted_partitions(workspace: Workspace, base: str) -> PartitionChoice:
    """Into how many partitions the settings want a base to be divided; 1: every worker has all of it."""
    settings, manifest = workspace.settings, read_manifest(workspace.storage, base)
    queries = manifest.counts.get("queries", 0)
    return choose_partitions(
        queries=queries,
        plan_bytes=manifest.size,
        budget_bytes=settings.plan_megabytes << 20,
        cores=cores_of(settings),
        wanted=settings.partitions if queries else 1,
    )


def cores_of(settings: Settings) -> int:
    """The cores that matching has, as far as the settings tell; on a cluster those of one executor.

    >>> cores_of(Settings(master="local[3]")), cores_of(Settings(master="local"))
    (3, 1)
    """
    told = re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", settings.master.strip())
    if told:
        return max(1, int(told.group(1) or 1))
    return settings.executor_cores or os.cpu_count() or 1


def partition_queries(
    workspace: Workspace,
    base: str,
    count: int,
    known: StreamKnowledge,
    *,
    before: Partitioning | None = None,
    partitions: Array | None = None,
    noted: Mapping[str, int] | None = None,
    proceed: Callable[[], None] = lambda: None,
) -> Partitioning:
    """Divide the queries of a base that is written, and write what was cut from it; it is published by others.

    Folders of the partitioning `before` are used again where they hold the same. `partitions` says of every query
    where it goes, if that is decided already; the strategy is then that of before. `noted` is kept with it.
    """
    part = load_part(workspace.storage, base)
    strategy = workspace.settings.partition_strategy or None
    if partitions is not None and before is not None:
        strategy = before.strategy
    return make_partitioning(
        workspace.storage,
        part.logical,
        stored_atoms(part),
        base=base,
        count=count,
        strategy=strategy,
        frequencies=known.frequencies or None,
        matcher=workspace.settings.matcher,
        matches=known.matches(part.queries.query_ids),
        operator_milliseconds=known.operator_milliseconds or None,
        samples=known.values,
        before=before,
        partitions=partitions,
        noted=noted,
        proceed=proceed,
        new_folder=new_folder,
    )


def partition_at_once(workspace: Workspace, connection: Connection, base: str, queries: int) -> Partitioning | None:
    """The partitioning of a base that was just written, where the settings force one and it takes no time to make."""
    if workspace.settings.partitions < 2 or queries > AT_ONCE:
        return None
    choice = wanted_partitions(workspace, base)
    return (
        None
        if choice.count < 2
        else partition_queries(
            workspace, base, choice.count, read_stream_knowledge(workspace, connection, newest=False)
        )
    )


def partition_if_wanted(
    workspace: Workspace, base: str, *, proceed: Callable[[], None] = lambda: None
) -> Partitioning | None:
    """The partitioning of a base that was just written, where one is wanted, however long that takes."""
    choice = wanted_partitions(workspace, base)
    if choice.count < 2:
        return None
    with workspace.catalog.read() as connection:
        known = read_stream_knowledge(workspace, connection)
    return partition_queries(workspace, base, choice.count, known, proceed=proceed)


def ensure_partitioning(
    workspace: Workspace, epoch: int, *, proceed: Callable[[], None] = lambda: None
) -> PartitioningResult | None:
    """See to it that the current version is divided as the settings want it; None where there is nothing to do.

    The new version has the same base, and the delta and the removals of the one that is current by then. So it may
    take as long as it takes, and nobody waits; `proceed` is called between its steps, and may raise to end it.
    Looking costs two small files, and whether the folders are there.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    if current is None:
        return None
    choice = wanted_partitions(workspace, current.base)
    there = partitioning_of(workspace, current)
    if _is_as_wanted(there, choice.count, workspace.settings) and (there is None) == (current.distribution is None):
        return None
    made = partition_if_wanted(workspace, current.base, proceed=proceed)
    version = publish_partitioning(workspace, epoch, current, made)
    if version is None:
        return None
    reason = choice.reason if made is None else f"{choice.reason}; {made.reason}"
    return PartitioningResult(version, choice.count, reason)


def _is_as_wanted(there: Partitioning | None, count: int, settings: Settings) -> bool:
    if there is None or count < 2:
        return there is None and count < 2
    return len(there.partitions) == count and settings.partition_strategy in ("", there.strategy)


def partitioning_of(workspace: Workspace, row: PlanRow, *, thorough: bool = False) -> Partitioning | None:
    """The partitioning of a version. One that is damaged is told of and done without: it is made again.

    Whether all its folders are there is always looked at; a thorough look reads them, and takes as long as that does.
    """
    if row.distribution is None:
        return None
    try:
        made = read_partitioning(workspace.storage, row.distribution)
        if not made.is_complete(workspace.storage):
            raise CorruptDataError(f"{made.folder} names folders that are gone")
        for piece in made.pieces if thorough else ():
            verify(workspace.storage, piece)
            read_part(workspace.storage, piece)
        return made
    except CorruptDataError as error:
        logger.warning("queries cannot be matched as they are divided: %s", error)
        return None


def repair_partitioning(workspace: Workspace, epoch: int, rows: Iterable[PlanRow]) -> bool:
    """Whether a partition of some versions is damaged; the queries of the current version are then divided again."""
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    damaged = [row for row in rows if partitioning_of(workspace, row, thorough=True) is None]
    if current in damaged:
        publish_partitioning(workspace, epoch, current, partition_if_wanted(workspace, current.base))
    return bool(damaged)


def publish_partitioning(workspace: Workspace, epoch: int, seen: PlanRow, made: Partitioning | None) -> int | None:
    """Publish a version that differs from the current one in its partitioning alone.

    None, and nothing is published, where the current one has another base or partitioning than the one that was seen,
    or where it took so long that what was written was collected as nobody's.
    """
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        newest = plan_versions.current_plan(connection)
        if newest is None or (newest.base, newest.distribution) != (seen.base, seen.distribution):
            return None
        if made is not None and not made.is_complete(workspace.storage):
            return None
        return plan_versions.publish_plan(
            connection,
            newest.base,
            newest.delta,
            newest.queries,
            newest.removed,
            distribution=None if made is None else made.folder,
            pieces=() if made is None else made.pieces,
        )
