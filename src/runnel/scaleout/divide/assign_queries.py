"""Assign queries to partitions, and estimate the cost of an assignment.

In: the weights of queries, and a number of partitions. Out: a partition for every query, and an estimate of the
copies per item and their cost. There are two strategies (RSS/RDF on a cluster, §3). *grouped* keeps related queries
in one partition, so that an item goes to few partitions. *spread* distributes related queries, so that all partitions
share the work for an item. Both balance CPU time and bytes, and are deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.errors import RunnelError
from runnel.kernel import kernel
from runnel.scaleout.cover.expected_routes import ExpectedRoutes, expect_routes
from runnel.scaleout.divide.balanced_split import split_evenly
from runnel.scaleout.divide.weigh_queries import Weights
from runnel.scaleout.partitioning import STRATEGIES, Strategy, WeighedStrategy

LIMIT = 1.12
"""Reuniting a group must not raise the load of a partition above this multiple of its fair share."""

_MIN_SAVING = 0.25
"""A strategy with a busier worker is chosen only if it saves this fraction of the total CPU time."""

_MAX_SLOWDOWN = 1.1
"""The maximum load of its busiest worker in that case, as a multiple of that of the other strategy."""

_EQUAL_RATIO = 1.02
"""Costs that differ by a smaller ratio count as equal, because the estimates are not more accurate."""

_HEAVY = 0.02
"""Queries with more than this fraction of a partition are assigned before all others."""


@dataclass(frozen=True)
class WeighedAssignment:
    """The expected cost of an assignment: in total, and by partition its share of items, CPU time, queries and bytes.

    `microseconds` of a partition is the time per item of the stream, averaged over all items.
    """

    weighed: WeighedStrategy
    routes: ExpectedRoutes
    microseconds: Array
    queries: Array
    bytes: Array

    @property
    def shares(self) -> Array:
        """The fraction of all items that are routed to each partition."""
        return self.routes.shares

    @property
    def busiest(self) -> float:
        """Microseconds per item on the busiest worker, with one worker per partition. All share the routing."""
        return self.routes.router / max(1, len(self.microseconds)) + float(self.microseconds.max(initial=0.0))

    @property
    def skew(self) -> float:
        """The time of the busiest partition as a multiple of the mean."""
        mean = float(self.microseconds.mean())
        return float(self.microseconds.max()) / mean if mean > 0 else 1.0


@dataclass(frozen=True)
class ChosenAssignment:
    """An assignment of queries to partitions, its strategy and cost, and the costs of all strategies considered."""

    partitions: Array
    strategy: Strategy
    weighed: tuple[WeighedStrategy, ...]
    division: WeighedAssignment
    reason: str


def assign_queries(weights: Weights, count: int, strategy: Strategy) -> Array:
    """Return the partition of every query, by position in `weights.owners`."""
    if count < 1:
        raise RunnelError(
            f"queries cannot be divided into {count} partitions", hint="the number of partitions must be at least 1"
        )
    if count == 1 or not len(weights):
        return np.zeros(len(weights), dtype=np.int64)
    # A unit of several queries is treated as one query.
    units = _Units.of(weights)
    match strategy:
        case "grouped":
            return np.asarray(_grouped(units, count)[weights.units])
        case "spread":
            return np.asarray(_spread(units, count)[weights.units])


@dataclass(frozen=True)
class _Units:
    """Units that are never divided: the fraction of total work and bytes, the group and the position of each."""

    work: Array
    size: Array
    groups: Array
    order: Array

    @staticmethod
    def of(weights: Weights) -> _Units:
        units = weights.units
        _, firsts = np.unique(units, return_index=True)
        order = np.full(len(firsts), len(weights), dtype=np.int64)
        np.minimum.at(order, units, weights.order)
        fractions = []
        for amounts in (weights.microseconds, weights.bytes):
            own, total = np.bincount(units, weights=amounts), float(amounts.sum())
            fractions.append(own / total if total > 0 else np.full(len(own), 1.0 / len(own)))
        return _Units(fractions[0], fractions[1], weights.groups[firsts].astype(np.int64), order)


def _grouped(units: _Units, count: int) -> Array:
    """Split the ordered units into parts with equal work and bytes, then reunite groups that were split."""
    line = np.argsort(units.order)
    partitions = np.empty(len(line), dtype=np.int64)
    partitions[line] = split_evenly(units.work[line], units.size[line], count)
    _reunite_groups(units.groups, partitions, np.stack([units.work, units.size]) * count, count)
    return partitions


def _reunite_groups(groups: Array, partitions: Array, fair: Array, count: int) -> None:
    """Move each split group that fits into one partition to the partition with most of it, among those with room.

    `fair` has the work and the bytes of each unit as multiples of the fair share of a partition.
    """
    pairs = np.unique(groups * count + partitions)
    split = np.flatnonzero(np.bincount(pairs // count) > 1)
    loads = np.stack([np.bincount(partitions, weights=amounts, minlength=count) for amounts in fair])
    members = np.flatnonzero(np.isin(groups, split))
    members = members[np.argsort(groups[members], kind="stable")]
    bounds = np.searchsorted(groups[members], split, side="right")
    split_groups = np.split(members, bounds[:-1]) if len(split) else []
    for own in sorted(split_groups, key=lambda group: (-float(fair[:, group].sum()), int(group[0]))):
        current = np.stack([np.bincount(partitions[own], weights=amounts[own], minlength=count) for amounts in fair])
        whole = current.sum(axis=1, keepdims=True)
        if whole.max() > 1.0:
            continue
        after = (loads - current + whole).max(axis=0)
        # A partition that is already above the limit keeps what it has, but receives nothing more.
        allowed = np.flatnonzero((current.sum(axis=0) > 0) & (after <= np.maximum(LIMIT, _limits(loads))))
        if len(allowed):
            best = int(allowed[np.argmax(current.sum(axis=0)[allowed])])
            loads -= current
            loads[:, best] += whole[:, 0]
            partitions[own] = best


def _limits(loads: Array) -> Array:
    return np.where(loads.max(axis=0) > LIMIT, 0.0, LIMIT)


def _spread(units: _Units, count: int) -> Array:
    """Distribute the members of every group, heavy ones first, each to the least loaded partition."""
    heavy = np.maximum(units.work, units.size) * count
    # Assign units that are a large part of a partition before all others, regardless of their groups.
    order = np.lexsort((units.order, -heavy, units.groups, np.where(heavy > _HEAVY, -heavy, 0.0)))
    return _distribute(order, units.groups, units.work, units.size, count, int(units.groups.max()) + 1)


@kernel
def _distribute(order: Array, groups: Array, work: Array, size: Array, count: int, group_count: int) -> Array:
    """Assign units in order, each to the least loaded partition that did not just receive one of the same group."""
    partitions = np.zeros(len(order), dtype=np.int64)
    works, sizes = np.zeros(count), np.zeros(count)
    last = np.full(count, -1)
    assigned_members = np.zeros(group_count, dtype=np.int64)
    for position in range(len(order)):
        query = order[position]
        group = groups[query]
        if assigned_members[group] % count == 0:
            # A new round of the group: every partition may receive a member again.
            for partition in range(count):
                if last[partition] == group:
                    last[partition] = -1
        best, least = -1, np.inf
        for partition in range(count):
            load = max(works[partition] + work[query], sizes[partition] + size[query])
            if last[partition] != group and load < least:
                best, least = partition, load
        if best < 0:
            for partition in range(count):
                load = max(works[partition] + work[query], sizes[partition] + size[query])
                if load < least:
                    best, least = partition, load
        partitions[query] = best
        works[best] += work[query]
        sizes[best] += size[query]
        last[best] = group
        assigned_members[group] += 1
    return partitions


def weigh_assignment(
    weights: Weights, partitions: Array, count: int, strategy: Strategy = "grouped"
) -> WeighedAssignment:
    """Estimate the cost of an assignment.

    Work that queries share is done once in every partition with at least one of them.
    """
    owners = np.repeat(np.arange(len(weights)), weights.shared.lengths)
    shared_count = max(1, len(weights.shared_microseconds))
    pairs = np.unique(partitions[owners] * shared_count + weights.shared.values)
    holders, shared = np.divmod(pairs, shared_count)
    # bincount of an empty array returns integers, so start with floats.
    work = np.zeros(count)
    work += np.bincount(holders, weights=weights.shared_microseconds[shared], minlength=count)
    work += np.bincount(partitions, weights=weights.own, minlength=count)
    targets = shared < len(weights.roots)
    routes = expect_routes(weights, holders[targets], weights.roots[shared[targets]], count)
    microseconds = routes.shares * weights.copy + work
    longest = routes.router + float(microseconds.max(initial=0.0))
    return WeighedAssignment(
        WeighedStrategy(strategy, routes.copies, routes.router + float(microseconds.sum()), longest),
        routes,
        microseconds,
        np.bincount(partitions, minlength=count),
        np.bincount(partitions, weights=weights.bytes, minlength=count),
    )


def choose_assignment(weights: Weights, count: int, wanted: Strategy | None = None) -> ChosenAssignment:
    """Estimate the cost of both strategies, and choose the better or the wanted one.

    The better strategy is the one with less work for the busiest worker, with one worker per partition that share the
    router's work. The other one is chosen if it saves much CPU time in total and its busiest worker has little more.
    """
    assigned = {name: assign_queries(weights, count, name) for name in STRATEGIES}
    divisions = {name: weigh_assignment(weights, assigned[name], count, name) for name in STRATEGIES}
    if wanted is not None:
        strategy, why = wanted, "as the settings say"
    else:
        strategy, why = _choose_better(*divisions.values())
    split_groups = _describe_split_groups(weights, assigned[strategy], count) if strategy == "grouped" else ""
    return ChosenAssignment(
        assigned[strategy],
        strategy,
        tuple(division.weighed for division in divisions.values()),
        divisions[strategy],
        f"{_NAMES[strategy]}, {why}: {'; '.join(map(_describe_cost, divisions.values()))}{split_groups}",
    )


_NAMES: dict[Strategy, str] = {
    "grouped": "related queries are kept together",
    "spread": "related queries are distributed",
}


def _choose_better(first: WeighedAssignment, second: WeighedAssignment) -> tuple[Strategy, str]:
    """Return the better of two strategies, or the first if they are equal, and the reason."""
    lighter, heavier = (first, second) if first.busiest <= second.busiest else (second, first)
    saves_time = heavier.weighed.microseconds < (1.0 - _MIN_SAVING) * lighter.weighed.microseconds
    if saves_time and heavier.busiest <= _MAX_SLOWDOWN * lighter.busiest:
        reason = "which takes much less CPU time, and little more on the busiest worker"
        return heavier.weighed.strategy, reason
    if heavier.busiest <= _EQUAL_RATIO * lighter.busiest:
        lesser = first if first.weighed.microseconds <= _EQUAL_RATIO * second.weighed.microseconds else second
        return lesser.weighed.strategy, "which takes no more time than the other strategy"
    return lighter.weighed.strategy, "which leaves less work for the busiest worker"


def _describe_cost(division: WeighedAssignment) -> str:
    weighed = division.weighed
    return (
        f"{weighed.strategy}: {weighed.copies:.2f} copies per item, {weighed.microseconds:,.1f} µs in total, "
        f"{division.busiest:,.1f} µs on the busiest worker, with one worker per partition"
    )


def _describe_split_groups(weights: Weights, partitions: Array, count: int) -> str:
    """Describe how many groups are in more than one partition. Return an empty text if there are none."""
    pairs = np.unique(weights.groups * count + partitions)
    split = int(np.count_nonzero(np.bincount(pairs // count) > 1))
    if not split:
        return ""
    groups = "group is" if split == 1 else "groups are"
    return f"; {split:,} {groups} split over several partitions to balance the load"
