"""How the queries of a root are divided over workers, in figures: what was expected, and what was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection

from runnel.catalog import matches
from runnel.catalog.partition_loads import PartitionLoad, known_loads
from runnel.catalog.plans import PlanRow
from runnel.engine.partitioning import wanted_partitions
from runnel.engine.root import Root
from runnel.errors import CorruptData
from runnel.plan.partitioning import Partitioning, read_partitioning

_NEWEST = 500
"""Items whose batches tell how many copies are made now."""


@dataclass(frozen=True, slots=True)
class PartitionFigure:
    """A partition: what is in it, what was expected of it for an item of the stream, and what it did lately.

    `share` is the part of all items that is expected to come to it, `expected_microseconds` what it is expected to
    cost for an item, whether that comes to it or not. What it did fades: old batches count less than new ones.
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

    `skew` is what the partition that takes longest takes, as a multiple of the mean. What was not measured is None.
    """

    strategy: str
    reason: str
    count_reason: str
    router_bytes: int
    expected_copies: float
    copies: float | None
    skew: float | None
    partitions: tuple[PartitionFigure, ...]

    @property
    def plan_loads(self) -> int:
        """How often plans of partitions were loaded lately."""
        return sum(one.loads for one in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For a terminal: how the queries are divided, and how that works out."""
        copies = f"{self.expected_copies:.2f} copies of an item expected"
        copies += ", none measured yet" if self.copies is None else f", {self.copies:.2f} measured"
        even = "" if self.skew is None else f"; the longest takes {self.skew:.1f} times the mean"
        loaded = f"; {self.plan_loads:,} plans loaded lately" if self.plan_loads else ""
        return [
            f"{len(self.partitions)} {self.strategy}: {self.count_reason}",
            f"{copies}{even}{loaded}",
        ]


def partition_figures(root: Root, connection: Connection, row: PlanRow | None) -> PartitionFigures | None:
    """The figures of a version; None where every worker has all queries, or what is divided cannot be read."""
    if row is None or row.partitioning is None:
        return None
    try:
        made = read_partitioning(root.storage, row.partitioning)
        why = wanted_partitions(root, row.base).reason
    except CorruptData:
        return None  # the runner divides again; `runnel doctor` tells
    loads = all_loads(known_loads(connection, made.folder), len(made.partitions))
    return PartitionFigures(
        strategy=made.strategy,
        reason=made.reason,
        count_reason=why,
        router_bytes=made.router_bytes,
        expected_copies=sum(one.share for one in made.partitions),
        copies=measured_copies(connection),
        skew=measured_skew(loads),
        partitions=_figures(made, loads),
    )


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
        for number, (one, load) in enumerate(zip(made.partitions, loads, strict=True))
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


def measured_copies(connection: Connection) -> float | None:
    """How often an item of the newest batches was given to a partition; None where no batch was divided."""
    newest = matches.match_segments(connection, max(0, matches.matched_upto(connection) - _NEWEST))
    divided = [one for one in newest if "copies" in one.counters]
    items = sum(one.items for one in divided)
    return sum(one.counters["copies"] for one in divided) / items if items else None
