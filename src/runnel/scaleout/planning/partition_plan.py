"""Decide whether a plan is partitioned, create its partitions, and publish them.

In: the settings, a base, and statistics of the stream. Out: a partitioning of the base, and a plan version that
refers to it. A base can be matched without partitions, but then each worker maps all of it. Declarations therefore do
not wait until a large base is partitioned. The runner does that when it starts, and whenever it finds a base without
the partitions that the settings require.
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

MAX_QUERIES_AT_ONCE = 1_000
"""A base with at most this many queries is partitioned before it is published, in some tenths of a second."""


@dataclass(frozen=True, slots=True)
class PartitioningResult:
    """A plan version that was published, its number of partitions, and the reason for that number."""

    version: int
    partitions: int
    reason: str


def wanted_partitions(workspace: Workspace, base: str) -> PartitionChoice:
    """Choose the number of partitions for a base from the settings. 1 means that every worker loads all of it."""
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
    """Return the number of cores for matching according to the settings; on a cluster, those of one executor.

    >>> cores_of(Settings(master="local[3]")), cores_of(Settings(master="local"))
    (3, 1)
    """
    local = re.fullmatch(r"local(?:\[(\d+)(?:,\s*\d+)?\])?", settings.master.strip())
    if local:
        return max(1, int(local.group(1) or 1))
    return settings.executor_cores or os.cpu_count() or 1


def partition_queries(
    workspace: Workspace,
    base: str,
    count: int,
    statistics: StreamKnowledge,
    *,
    before: Partitioning | None = None,
    partitions: Array | None = None,
    noted: Mapping[str, int] | None = None,
    proceed: Callable[[], None] = lambda: None,
) -> Partitioning:
    """Create and write the partitions of a base, without publishing them.

    A partition of the partitioning `before` with the same queries is reused. `partitions` contains the partition of
    each query if that is already decided; the strategy is then that of `before`. `noted` is added to the counters.
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
        frequencies=statistics.frequencies or None,
        matcher=workspace.settings.matcher,
        matches=statistics.matches(part.queries.query_ids),
        operator_milliseconds=statistics.operator_milliseconds or None,
        samples=statistics.values,
        before=before,
        partitions=partitions,
        noted=noted,
        proceed=proceed,
        new_folder=new_folder,
    )


def partition_at_once(workspace: Workspace, connection: Connection, base: str, queries: int) -> Partitioning | None:
    """Partition a new base if the settings require a number of partitions and the base is small, or return None."""
    if workspace.settings.partitions < 2 or queries > MAX_QUERIES_AT_ONCE:
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
    """Partition a new base of any size if the settings call for partitions, or return None."""
    choice = wanted_partitions(workspace, base)
    if choice.count < 2:
        return None
    with workspace.catalog.read() as connection:
        statistics = read_stream_knowledge(workspace, connection)
    return partition_queries(workspace, base, choice.count, statistics, proceed=proceed)


def ensure_partitioning(
    workspace: Workspace, epoch: int, *, proceed: Callable[[], None] = lambda: None
) -> PartitioningResult | None:
    """Partition the current plan version as the settings require, and publish the result.

    Return None if nothing had to be done or nothing was published (see `publish_partitioning`). Declarations do not
    wait for this: the new version takes the delta and the removals of the version that is current at the end.
    `proceed` is called between the steps, and may raise an error to end them. The check itself reads two small files
    and tests whether the folders exist.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    if current is None:
        return None
    choice = wanted_partitions(workspace, current.base)
    existing = partitioning_of(workspace, current)
    is_damaged = existing is None and current.distribution is not None
    if not is_damaged and _is_as_wanted(existing, choice.count, workspace.settings):
        return None
    partitioning = partition_if_wanted(workspace, current.base, proceed=proceed)
    version = publish_partitioning(workspace, epoch, current, partitioning)
    if version is None:
        return None
    reason = choice.reason if partitioning is None else f"{choice.reason}; {partitioning.reason}"
    return PartitioningResult(version, choice.count, reason)


def _is_as_wanted(existing: Partitioning | None, count: int, settings: Settings) -> bool:
    if existing is None or count < 2:
        return existing is None and count < 2
    return len(existing.partitions) == count and settings.partition_strategy in ("", existing.strategy)


def partitioning_of(workspace: Workspace, row: PlanRow, *, thorough: bool = False) -> Partitioning | None:
    """Read the partitioning of a version, or return None if it has none or the partitioning is damaged.

    Damage is logged. The existence of all folders is always checked; with `thorough`, their files are read, too.
    """
    if row.distribution is None:
        return None
    try:
        partitioning = read_partitioning(workspace.storage, row.distribution)
        if not partitioning.is_complete(workspace.storage):
            raise CorruptDataError(f"{partitioning.folder} refers to folders that do not exist")
        for folder in partitioning.pieces if thorough else ():
            verify(workspace.storage, folder)
            read_part(workspace.storage, folder)
        return partitioning
    except CorruptDataError as error:
        logger.warning("the partitions of plan version %d cannot be used: %s", row.version, error)
        return None


def repair_partitioning(workspace: Workspace, epoch: int, rows: Iterable[PlanRow]) -> bool:
    """Check the partitions of some versions. Partition the current version again if its partitions are damaged.

    Return whether the partitions of any of these versions are damaged.
    """
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    damaged = [row for row in rows if partitioning_of(workspace, row, thorough=True) is None]
    if current in damaged:
        publish_partitioning(workspace, epoch, current, partition_if_wanted(workspace, current.base))
    return bool(damaged)


def publish_partitioning(
    workspace: Workspace, epoch: int, seen: PlanRow, partitioning: Partitioning | None
) -> int | None:
    """Publish a version that differs from the current one only in its partitioning, and return its number.

    Publish nothing and return None if the current version has another base or partitioning than the version `seen`,
    or if garbage collection has deleted the new folders because creating them took too long.
    """
    with workspace.catalog.write() as connection:
        leases.check(connection, epoch)
        newest = plan_versions.current_plan(connection)
        if newest is None or (newest.base, newest.distribution) != (seen.base, seen.distribution):
            return None
        if partitioning is not None and not partitioning.is_complete(workspace.storage):
            return None
        return plan_versions.publish_plan(
            connection,
            newest.base,
            newest.delta,
            newest.queries,
            newest.removed,
            distribution=None if partitioning is None else partitioning.folder,
            pieces=() if partitioning is None else partitioning.pieces,
        )
