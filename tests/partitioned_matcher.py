"""Matching in partitions within one process: router, delta and partitions behind the contract of all matchers.

A run matches partitions on several workers. This matcher checks routing, loading and merging without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from runnel.arrays import Array, offsets_of
from runnel.errors import CorruptDataError, RunnelError
from runnel.logs.matches.match_steps import steps_of
from runnel.matching.compile.loaded_plan import LoadedPlan
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.matching.filters.streams.emit import merge_steps
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches, SteppedMatches, Steps
from runnel.plan.store import PlanVersion
from runnel.scaleout.partitioning import Partitioning, read_partitioning
from runnel.scaleout.route.loaded_partition import delta_plan, load_partition, load_router
from runnel.scaleout.route.plan_lru import PlanLru
from runnel.scaleout.route.router import Router
from runnel.storage.file_storage import Storage

_WORK = ("candidates", "clause_checks", "atom_evaluations", "fallbacks")
"""Statistics that add up over the router and the pieces."""


@dataclass(frozen=True)
class PartitionMatches:
    """What a piece found in the items of some rows, which ascend."""

    rows: Array
    matches: Matches


class PartitionedMatcher:
    """The matcher of a partitioned version. `budget_bytes` bounds what is mapped, router and delta included."""

    def __init__(self, storage: Storage, version: PlanVersion, *, budget_bytes: int | None = None) -> None:
        self.statistics = MatchStatistics()
        self.partitioning = partitioning_of(storage, version)
        self._storage, self._version = storage, version
        router = load_router(storage, version, self.partitioning.router)
        delta = delta_plan(storage, version, router)
        self.router = Router(router, len(self.partitioning.partitions))
        self._delta = None if delta is None else LoadedPlan.of(delta)
        always = router.bytes + (0 if delta is None else delta.bytes)
        left = None if budget_bytes is None else max(0, budget_bytes - always)
        self.held = PlanLru[int, LoadedPlan](left)
        self.false_copies = 0

    @property
    def counters(self) -> dict[str, int]:
        """What routing and holding took: copies of items, those of them that matched nothing, and loads of plans."""
        routing = {"items": self.router.items, "copies": self.router.copies, "false_copies": self.false_copies}
        return routing | self.held.counters.to_json()

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        self.router.matcher.statistics = counted = MatchStatistics()
        routed = self.router.route(items)
        self._add(counted, _WORK)
        results: list[PartitionMatches] = []
        if self._delta is not None:
            results.append(PartitionMatches(np.arange(len(items)), self._asked(self._delta.matcher, items)))
        for partition in held_first(self.held, range(len(self.partitioning.partitions))):
            rows = routed.rows(partition)
            missed = len(items) - len(rows)
            self.statistics.naive_evaluations += missed * self.partitioning.partitions[partition].queries
            if len(rows):
                results.append(PartitionMatches(rows, self._matched(partition, items, rows)))
        matches = united(len(items), results)
        self.statistics.items += len(items)
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
        return matches

    def _matched(self, partition: int, items: ItemBatch, rows: Array) -> Matches:
        """What the items of some rows match in a partition, which nothing refers to afterwards but what holds it."""
        value = self.partitioning.partitions[partition]
        piece = self.held.get(
            partition, value.bytes, lambda: LoadedPlan.of(load_partition(self._storage, self._version, value.folder))
        )
        chosen = items if len(rows) == len(items) else ItemBatch(items.records.take(rows))
        matches = self._asked(piece.matcher, chosen)
        useful = np.diff(matches.offsets) > 0
        useful[[failure.row for failure in matches.failures]] = True
        self.false_copies += len(rows) - int(np.count_nonzero(useful))
        return matches

    def _asked(self, matcher: Matcher, items: ItemBatch) -> Matches:
        """What a piece answers, its work added to all there was."""
        matcher.statistics = counted = MatchStatistics()
        matches = matcher.match(items)
        self._add(counted, ("naive_evaluations", *_WORK))
        return matches

    def _add(self, counted: MatchStatistics, names: Iterable[str]) -> None:
        for name in names:
            setattr(self.statistics, name, getattr(self.statistics, name) + getattr(counted, name))


def held_first(held: PlanLru[Any, Any], keys: Iterable[int]) -> list[int]:
    """The keys with the held ones first, because going through more than fits would otherwise reload everything."""
    return sorted(keys, key=lambda key: not held.is_held(key))


def partitioning_of(storage: Storage, version: PlanVersion) -> Partitioning:
    """The partitioning of a version that has one."""
    if version.distribution is None:
        raise RunnelError(f"version {version.version} of the plan is not partitioned")
    partitioning = read_partitioning(storage, version.distribution)
    if partitioning.base != version.base:
        raise CorruptDataError(f"{version.distribution} does not divide {version.base}, but {partitioning.base}")
    return partitioning


def united(count: int, results: Sequence[PartitionMatches]) -> Matches:
    """What several partitions found, as one answer about `count` items; no query is in two partitions."""
    waiting = [_spread(count, result) for result in results if result.matches.total]
    if not waiting:
        empty = np.zeros(count + 1, dtype=np.int64)
        waiting = [Steps(empty, np.empty(0, dtype=np.uint16), empty.copy(), np.empty(0, dtype=np.int64))]
    while len(waiting) > 1:  # two by two, so that an id is copied as often as there are levels, not pieces
        pairs = zip_longest(waiting[::2], waiting[1::2])
        waiting = [value if other is None else _merged(value, other) for value, other in pairs]
    failures = (
        Failure(int(result.rows[each.row]), each.query, each.reason)
        for result in results
        for each in result.matches.failures
    )
    return SteppedMatches(waiting[0], tuple(sorted(failures, key=lambda failure: (failure.row, failure.query))))


def _spread(count: int, partition_matches: PartitionMatches) -> Steps:
    """The steps of some rows as those of all; rows that were not asked have none."""
    matches = partition_matches.matches
    steps = matches.steps if isinstance(matches, SteppedMatches) else steps_of(matches.offsets, matches.queries)
    if len(partition_matches.rows) == count:
        return steps
    lengths = np.zeros((2, count), dtype=np.int64)
    lengths[0, partition_matches.rows] = np.diff(steps.offsets)
    lengths[1, partition_matches.rows] = np.diff(steps.leap_offsets)
    return Steps(offsets_of(lengths[0]), steps.steps, offsets_of(lengths[1]), steps.leaps)


def _merged(entry: Steps, other: Steps) -> Steps:
    left = entry.offsets, entry.steps, entry.leap_offsets, entry.leaps
    return Steps(*merge_steps(*left, other.offsets, other.steps, other.leap_offsets, other.leaps))
