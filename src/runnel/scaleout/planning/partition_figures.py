"""Figures about the partitions of a workspace: the expected and the measured load of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.engine.planning.ports import FigureTable, PlanFigures, WholePlanFigures
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.scaleout.divide.choose_partitions import PartitionChoice
from runnel.scaleout.partitioning import Partitioning, read_partitioning
from runnel.scaleout.planning.partition_loads import PartitionLoad, known_loads
from runnel.scaleout.planning.partition_plan import wanted_partitions

_RECENT_ITEMS = 500
"""The number of copies per item is measured in the batches of this many recent items."""


@dataclass(frozen=True, slots=True)
class PartitionFigure:
    """A partition: its contents, its expected cost per item of the stream, and its measured load.

    `number` starts at 1. `share` is the fraction of all items that are expected to be routed to the partition.
    `expected_microseconds` is its expected cost per item, averaged over all items. In the measured load, old batches
    count less than new ones.
    """

    number: int
    queries: int
    bytes: int
    share: float
    expected_microseconds: float
    items: int
    matches: int
    microseconds: int
    loads: int


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """The partitions of the current version: their strategy and number, copies per item, and how even their load is.

    `reason` explains the strategy, `count_reason` the number of partitions. The latter is not stored, so it is None
    if the settings now require another number. If the next start of the runner will change the partitions,
    `next_start` describes how. `expected_busiest` is the expected time per item on the busiest worker, with one
    worker per partition. `skew` is the time of the busiest partition as a multiple of the mean. `copies` and `skew`
    are None if nothing was measured.
    """

    strategy: str
    reason: str
    count_reason: str | None
    next_start: str | None
    router_bytes: int
    expected_copies: float
    expected_busiest: float | None
    copies: float | None
    skew: float | None
    partitions: tuple[PartitionFigure, ...]

    @property
    def plan_loads(self) -> int:
        """How often partitions were loaded recently."""
        return sum(partition.loads for partition in self.partitions)

    def to_json(self) -> dict[str, Any]:
        return {"partitions": asdict(self), "undivided": None}

    def table(self) -> FigureTable:
        """Return a table with the recent load of each partition."""
        rows = (
            (
                f"{partition.number:,}",
                f"{partition.queries:,}",
                f"{partition.items:,}",
                f"{partition.matches:,}",
                f"{partition.microseconds / partition.items:,.1f}" if partition.items else "",
            )
            for partition in self.partitions
        )
        return FigureTable(
            "Partitions",
            tuple(self.lines()),
            ("Partition", "Queries", "Recent items", "Matches", "Microseconds per item"),
            tuple(rows),
        )

    def lines(self) -> list[str]:
        """Describe the partitions for a terminal."""
        reason = f": {self.count_reason}" if self.count_reason else ", as created last"
        copies = f"copies per item: {self.expected_copies:,.2f} expected"
        copies += ", none measured yet" if self.copies is None else f", {self.copies:,.2f} measured"
        skew = "" if self.skew is None else f"; the busiest partition takes {self.skew:,.1f} times the mean"
        loads = f"; {self.plan_loads:,} plans loaded recently" if self.plan_loads else ""
        return [
            f"{len(self.partitions):,} {self.strategy}{reason}",
            *([self.next_start] if self.next_start else []),
            f"{copies}{skew}{loads}",
        ]


def read_partition_figures(workspace: Workspace, connection: Connection, row: PlanRow) -> PlanFigures:
    """Return figures about the partitions of a version, or about those that the runner will create.

    Raise CorruptDataError if the partitioning is damaged.
    """
    if row.distribution is not None:
        return partition_figures(workspace, connection, row, row.distribution)
    wanted = wanted_partitions(workspace, row.base)
    return WholePlanFigures(
        f"every worker has all queries until the runner creates {wanted.count:,} partitions ({wanted.brief})"
    )


def partition_figures(workspace: Workspace, connection: Connection, row: PlanRow, folder: str) -> PartitionFigures:
    """Return the figures of a plan version's partitioning, which is stored in `folder`."""
    partitioning = read_partitioning(workspace.storage, folder)
    if not partitioning.is_complete(workspace.storage):
        raise CorruptDataError(f"{partitioning.folder} refers to folders that do not exist")
    wanted = wanted_partitions(workspace, row.base)
    loads = all_loads(known_loads(connection, partitioning.folder), len(partitioning.partitions))
    return PartitionFigures(
        strategy=partitioning.strategy,
        reason=partitioning.reason,
        count_reason=wanted.reason if wanted.count == len(partitioning.partitions) else None,
        next_start=next_start(partitioning, wanted, workspace.settings.partition_strategy),
        router_bytes=partitioning.router_bytes,
        expected_copies=sum(partition.share for partition in partitioning.partitions),
        expected_busiest=_busiest(partitioning),
        copies=measured_copies(connection, partitioning.folder),
        skew=measured_skew(loads),
        partitions=_figures(partitioning, loads),
    )


def partition_gauges(connection: Connection, row: PlanRow) -> dict[str, float | None]:
    """Return the metrics of a version. This reads only the catalog."""
    folder, count = row.distribution or "", max(1, len(row.pieces) - 1)  # the router is one of the pieces
    loads = all_loads(known_loads(connection, folder), count)
    return {
        "runnel_partitions": count,
        "runnel_partition_skew": measured_skew(loads),
        "runnel_partition_copies": measured_copies(connection, folder),
        "runnel_partition_loads": sum(load.loads for load in loads),
    }


def next_start(partitioning: Partitioning, wanted: PartitionChoice, strategy: str) -> str | None:
    """Describe how the next start of the runner changes a partitioning, or return None if it does not."""
    if wanted.count < 2:
        return f"at its next start, the runner gives every worker all queries ({wanted.brief})"
    if wanted.count != len(partitioning.partitions):
        return f"at its next start, the runner creates {wanted.count:,} partitions ({wanted.brief})"
    if strategy not in ("", partitioning.strategy):
        return f"at its next start, the runner uses the strategy {strategy} (as the settings say)"
    return None


def _busiest(partitioning: Partitioning) -> float | None:
    """Return the expected time per item on the busiest worker, with one worker per partition.

    All workers share the work of the router. Its time is not stored, but is the total without the partitions.
    """
    totals = (weighed.microseconds for weighed in partitioning.weighed if weighed.strategy == partitioning.strategy)
    total = next(totals, None)
    if total is None or not partitioning.partitions:
        return None
    times = [partition.microseconds for partition in partitioning.partitions]
    return max(0.0, total - sum(times)) / len(times) + max(times)


def _figures(partitioning: Partitioning, loads: list[PartitionLoad]) -> tuple[PartitionFigure, ...]:
    return tuple(
        PartitionFigure(
            number,
            partition.queries,
            partition.bytes,
            partition.share,
            partition.microseconds,
            load.items,
            load.matches,
            load.microseconds,
            load.loads,
        )
        for number, (partition, load) in enumerate(zip(partitioning.partitions, loads, strict=True), start=1)
    )


def all_loads(known: list[PartitionLoad], count: int) -> list[PartitionLoad]:
    """Return the loads of all partitions in order, with zeros for those that are not in `known`.

    >>> [load.items for load in all_loads([PartitionLoad(1, 5, 0, 9, 1), PartitionLoad(7, 1, 1, 1, 1)], 3)]
    [0, 5, 0]
    """
    by_number = {load.partition: load for load in known}
    return [by_number.get(number, PartitionLoad(number, 0, 0, 0, 0)) for number in range(count)]


def measured_skew(loads: list[PartitionLoad]) -> float | None:
    """Return the time of the busiest partition as a multiple of the mean, or None if nothing was measured.

    >>> measured_skew([PartitionLoad(0, 1, 1, 300, 0), PartitionLoad(1, 1, 1, 100, 0)])
    1.5
    """
    times = [load.microseconds for load in loads]
    return max(times) * len(times) / sum(times) if sum(times) else None


def measured_copies(connection: Connection, partitioning: str) -> float | None:
    """Return to how many partitions an item was routed on average, in recent batches with this partitioning.

    Return None if there are no such batches.
    """
    newest = match_segments.match_segments(
        connection, max(0, match_segments.matched_upto(connection) - _RECENT_ITEMS)
    )
    partitioned = [segment for segment in newest if "copies" in segment.counters]
    plans = {segment.plan for segment in partitioned}
    rows = (plan_versions.plan_by_version(connection, version) for version in plans)
    versions = {row.version for row in rows if row is not None and row.distribution == partitioning}
    segments = [segment for segment in partitioned if segment.plan in versions]
    items = sum(segment.items for segment in segments)
    return sum(segment.counters["copies"] for segment in segments) / items if items else None
