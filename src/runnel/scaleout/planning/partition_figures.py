"""How the queries of a workspace are divided over workers, in figures: what was expected, and what was measured."""

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

_NEWEST = 500
"""Items whose batches tell how many copies are made now."""


@dataclass(frozen=True, slots=True)
class PartitionFigure:
    """A partition: what is in it, what was expected of it for an item of the stream, and what it did lately.

    People count from 1, so `number` does too. `share` is the part of all items that is expected to come to it,
    `expected_microseconds` what it is expected to cost for an item, whether that comes to it or not. What it did
    fades: old batches count less than new ones.
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
    """The current version as it is divided: how and why, copies of an item, and how evenly partitions are loaded.

    `reason` says why it is grouped or spread, `count_reason` why there are so many partitions. That is not kept, so
    it is only said where the settings still want as many. Where they want something else, `next_start` says what.
    `expected_busiest` is microseconds for an item on the busiest worker, if every partition had one. `skew` is what
    the partition that takes longest takes, as a multiple of the mean. What was not measured is None.
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
        """How often plans of partitions were loaded lately."""
        return sum(one.loads for one in self.partitions)

    def to_json(self) -> dict[str, Any]:
        return {"partitions": asdict(self), "undivided": None}

    def table(self) -> FigureTable:
        """What every partition did lately."""
        rows = (
            (
                f"{one.number:,}",
                f"{one.queries:,}",
                f"{one.items:,}",
                f"{one.matches:,}",
                f"{one.microseconds / one.items:,.1f}" if one.items else "",
            )
            for one in self.partitions
        )
        return FigureTable(
            "Partitions",
            tuple(self.lines()),
            ("Partition", "Queries", "Items lately", "Matches", "Microseconds an item"),
            tuple(rows),
        )

    def lines(self) -> list[str]:
        """For a terminal: how the queries are divided, and how that works out."""
        why = f": {self.count_reason}" if self.count_reason else ", as they were divided last"
        copies = f"{self.expected_copies:,.2f} copies of an item expected"
        copies += ", none measured yet" if self.copies is None else f", {self.copies:,.2f} measured"
        even = "" if self.skew is None else f"; the longest takes {self.skew:,.1f} times the mean"
        loaded = f"; {self.plan_loads:,} plans loaded lately" if self.plan_loads else ""
        return [
            f"{len(self.partitions):,} {self.strategy}{why}",
            *([self.next_start] if self.next_start else []),
            f"{copies}{even}{loaded}",
        ]


def read_partition_figures(workspace: Workspace, connection: Connection, row: PlanRow) -> PlanFigures:
    """How a version is divided, or is going to be; CorruptDataError where that cannot be read."""
    if row.distribution is not None:
        return partition_figures(workspace, connection, row, row.distribution)
    wanted = wanted_partitions(workspace, row.base)
    return WholePlanFigures(
        f"every worker has all queries, until the runner divides them into {wanted.count:,} ({wanted.brief})"
    )


def partition_figures(workspace: Workspace, connection: Connection, row: PlanRow, folder: str) -> PartitionFigures:
    """The figures of a version that is divided as a folder says."""
    made = read_partitioning(workspace.storage, folder)
    if not made.is_complete(workspace.storage):
        raise CorruptDataError(f"{made.folder} names folders that are gone")
    wanted = wanted_partitions(workspace, row.base)
    loads = all_loads(known_loads(connection, made.folder), len(made.partitions))
    return PartitionFigures(
        strategy=made.strategy,
        reason=made.reason,
        count_reason=wanted.reason if wanted.count == len(made.partitions) else None,
        next_start=next_start(made, wanted, workspace.settings.partition_strategy),
        router_bytes=made.router_bytes,
        expected_copies=sum(one.share for one in made.partitions),
        expected_busiest=_busiest(made),
        copies=measured_copies(connection, made.folder),
        skew=measured_skew(loads),
        partitions=_figures(made, loads),
    )


def partition_gauges(connection: Connection, row: PlanRow) -> dict[str, float | None]:
    """The metrics of a version, from the catalog alone."""
    folder, count = row.distribution or "", max(1, len(row.pieces) - 1)  # the router is a piece too
    loads = all_loads(known_loads(connection, folder), count)
    return {
        "runnel_partitions": count,
        "runnel_partition_skew": measured_skew(loads),
        "runnel_partition_copies": measured_copies(connection, folder),
        "runnel_partition_loads": sum(one.loads for one in loads),
    }


def next_start(made: Partitioning, wanted: PartitionChoice, strategy: str) -> str | None:
    """What the next start of the runner makes of a division, in words; None where it is as the settings want it."""
    if wanted.count < 2:
        return f"the next start of the runner gives every worker all of them ({wanted.brief})"
    if wanted.count != len(made.partitions):
        return f"the next start of the runner divides them into {wanted.count:,} ({wanted.brief})"
    if strategy not in ("", made.strategy):
        return f"the next start of the runner makes them {strategy} (as the settings say)"
    return None


def _busiest(made: Partitioning) -> float | None:
    """What an item takes on the busiest worker, if every partition had one and all of them shared the router's work.

    What the router takes is not kept, but it is what is left of the whole without the partitions.
    """
    whole = next((one.microseconds for one in made.weighed if one.strategy == made.strategy), None)
    if whole is None or not made.partitions:
        return None
    each = [one.microseconds for one in made.partitions]
    return max(0.0, whole - sum(each)) / len(each) + max(each)


def _figures(made: Partitioning, loads: list[PartitionLoad]) -> tuple[PartitionFigure, ...]:
    return tuple(
        PartitionFigure(
            number,
            one.queries,
            one.bytes,
            one.share,
            one.microseconds,
            load.items,
            load.matches,
            load.microseconds,
            load.loads,
        )
        for number, (one, load) in enumerate(zip(made.partitions, loads, strict=True), start=1)
    )


def all_loads(known: list[PartitionLoad], count: int) -> list[PartitionLoad]:
    """The loads of all partitions, in order; those of which nothing is known did nothing.

    >>> [one.items for one in all_loads([PartitionLoad(1, 5, 0, 9, 1), PartitionLoad(7, 1, 1, 1, 1)], 3)]
    [0, 5, 0]
    """
    by_number = {one.partition: one for one in known}
    return [by_number.get(number, PartitionLoad(number, 0, 0, 0, 0)) for number in range(count)]


def measured_skew(loads: list[PartitionLoad]) -> float | None:
    """What the partition that takes longest takes, as a multiple of the mean; None where nothing was measured.

    >>> measured_skew([PartitionLoad(0, 1, 1, 300, 0), PartitionLoad(1, 1, 1, 100, 0)])
    1.5
    """
    taken = [one.microseconds for one in loads]
    return max(taken) * len(taken) / sum(taken) if sum(taken) else None


def measured_copies(connection: Connection, partitioning: str) -> float | None:
    """How often an item of the newest batches was given to a partition; None where no batch was divided so.

    Batches that were matched with the queries divided otherwise say nothing of how they are divided now.
    """
    newest = match_segments.match_segments(connection, max(0, match_segments.matched_upto(connection) - _NEWEST))
    divided = [one for one in newest if "copies" in one.counters]
    rows = (plan_versions.plan_by_version(connection, version) for version in {one.plan for one in divided})
    versions = {row.version for row in rows if row is not None and row.distribution == partitioning}
    alike = [one for one in divided if one.plan in versions]
    items = sum(one.items for one in alike)
    return sum(one.counters["copies"] for one in alike) / items if items else None
