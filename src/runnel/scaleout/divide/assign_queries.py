"""Which query goes to which partition, and what that is expected to cost.

In: the weights of queries, and a number of partitions. Out: a partition for every query, and a Division that says how
many copies of an item it makes and what they cost. There are two strategies (RSS/RDF on a cluster, §3): *grouped*
keeps related queries in one partition, so that an item goes to few; *spread* deals related queries out, so that the
work for an item is done by all at once. Both divide microseconds and bytes alike, and need no dice.
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
"""No partition is given more than this part of its fair share by bringing groups together."""

_SAVED = 0.25
"""The part of all processor time for which a somewhat longer way is taken."""

_LONGER = 1.1

_ALIKE = 1.02
"""What differs by less is the same: the estimates are no better."""

_HEAVY = 0.02
"""A query with more than this part of a partition is placed before all others."""


@dataclass(frozen=True)
class WeighedAssignment:
    """An assignment as a whole, and by partition: the part of the items that it gets, its work, queries and bytes.

    `microseconds` of a partition is for an item of the stream, whether that comes to it or not.
    """

    weighed: WeighedStrategy
    routes: ExpectedRoutes
    microseconds: Array
    queries: Array
    bytes: Array

    @property
    def shares(self) -> Array:
        """The part of all items that comes to each partition."""
        return self.routes.shares

    @property
    def busiest(self) -> float:
        """Microseconds for an item on the busiest worker, with one for each partition; all share the routing."""
        return self.routes.router / max(1, len(self.microseconds)) + float(self.microseconds.max(initial=0.0))

    @property
    def skew(self) -> float:
        """The work of the partition with most, over that of all in the mean."""
        mean = float(self.microseconds.mean())
        return float(self.microseconds.max()) / mean if mean > 0 else 1.0


@dataclass(frozen=True)
class ChosenAssignment:
    """An assignment: the partition of every query, how it was found, and what else was weighed."""

    partitions: Array
    strategy: Strategy
    weighed: tuple[WeighedStrategy, ...]
    division: WeighedAssignment
    reason: str


def assign_queries(weights: Weights, count: int, strategy: Strategy) -> Array:
    """The partition of every query, by position in `weights.owners`."""
    if count < 1:
        raise RunnelError(f"queries cannot be divided into {count} partitions", hint="ask for one or more")
    if count == 1 or not len(weights):
        return np.zeros(len(weights), dtype=np.int64)
    # Clumps are dealt with as if each were one query.
    units = _Units.of(weights)
    match strategy:
        case "grouped":
            return np.asarray(_grouped(units, count)[weights.clumps])
        case "spread":
            return np.asarray(_spread(units, count)[weights.clumps])


@dataclass(frozen=True)
class _Units:
    """What is never divided: its part of all work and of all bytes, its group, and its place on the line."""

    work: Array
    size: Array
    groups: Array
    order: Array

    @staticmethod
    def of(weights: Weights) -> _Units:
        clumps = weights.clumps
        _, firsts = np.unique(clumps, return_index=True)
        order = np.full(len(firsts), len(weights), dtype=np.int64)
        np.minimum.at(order, clumps, weights.order)
        parts = []
        for amounts in (weights.microseconds, weights.bytes):
            own, total = np.bincount(clumps, weights=amounts), float(amounts.sum())
            parts.append(own / total if total > 0 else np.full(len(own), 1.0 / len(own)))
        return _Units(parts[0], parts[1], weights.groups[firsts].astype(np.int64), order)


def _grouped(units: _Units, count: int) -> Array:
    """Cut the line where both work and bytes are divided alike, then mend the groups that were cut."""
    line = np.argsort(units.order)
    partitions = np.empty(len(line), dtype=np.int64)
    partitions[line] = split_evenly(units.work[line], units.size[line], count)
    _bring_together(units.groups, partitions, np.stack([units.work, units.size]) * count, count)
    return partitions


def _bring_together(groups: Array, partitions: Array, fair: Array, count: int) -> None:
    """Bring each group that was cut, and fits into one partition, to where most of it is and there is room."""
    tables = np.unique(groups * count + partitions)
    cut = np.flatnonzero(np.bincount(tables // count) > 1)
    loads = np.stack([np.bincount(partitions, weights=one, minlength=count) for one in fair])
    members = np.flatnonzero(np.isin(groups, cut))
    members = members[np.argsort(groups[members], kind="stable")]
    bounds = np.searchsorted(groups[members], cut, side="right")
    found = np.split(members, bounds[:-1]) if len(cut) else []
    for own in sorted(found, key=lambda one: (-float(fair[:, one].sum()), int(one[0]))):
        there = np.stack([np.bincount(partitions[own], weights=one[own], minlength=count) for one in fair])
        whole = there.sum(axis=1, keepdims=True)
        if whole.max() > 1.0:
            continue
        after = (loads - there + whole).max(axis=0)
        # A partition that is above the limit anyway may keep what it has, but is given no more.
        allowed = np.flatnonzero((there.sum(axis=0) > 0) & (after <= np.maximum(LIMIT, _before(loads))))
        if len(allowed):
            best = int(allowed[np.argmax(there.sum(axis=0)[allowed])])
            loads -= there
            loads[:, best] += whole[:, 0]
            partitions[own] = best


def _before(loads: Array) -> Array:
    return np.where(loads.max(axis=0) > LIMIT, 0.0, LIMIT)


def _spread(units: _Units, count: int) -> Array:
    """Deal the members of every group out, the heavy ones first, each to the least loaded partition of its turn."""
    heavy = np.maximum(units.work, units.size) * count
    # Those that alone are a good part of a partition go before all others, whatever their groups.
    order = np.lexsort((units.order, -heavy, units.groups, np.where(heavy > _HEAVY, -heavy, 0.0)))
    return _deal(order, units.groups, units.work, units.size, count, int(units.groups.max()) + 1)


@kernel
def _deal(order: Array, groups: Array, work: Array, size: Array, count: int, group_count: int) -> Array:
    partitions = np.zeros(len(order), dtype=np.int64)
    works, sizes = np.zeros(count), np.zeros(count)
    last = np.full(count, -1)
    turns = np.zeros(group_count, dtype=np.int64)
    for place in range(len(order)):
        query = order[place]
        group = groups[query]
        if turns[group] % count == 0:
            # A new turn of the group: every partition may be given one of it again.
            for one in range(count):
                if last[one] == group:
                    last[one] = -1
        best, least = -1, np.inf
        for one in range(count):
            load = max(works[one] + work[query], sizes[one] + size[query])
            if last[one] != group and load < least:
                best, least = one, load
        if best < 0:
            for one in range(count):
                load = max(works[one] + work[query], sizes[one] + size[query])
                if load < least:
                    best, least = one, load
        partitions[query] = best
        works[best] += work[query]
        sizes[best] += size[query]
        last[best] = group
        turns[group] += 1
    return partitions


def weigh_assignment(
    weights: Weights, partitions: Array, count: int, strategy: Strategy = "grouped"
) -> WeighedAssignment:
    """What an assignment is expected to cost.

    What queries share is done once in every partition that has one of them.
    """
    owners = np.repeat(np.arange(len(weights)), weights.shared.lengths)
    things = max(1, len(weights.shared_microseconds))
    pairs = np.unique(partitions[owners] * things + weights.shared.values)
    holders, shared = np.divmod(pairs, things)
    # A sum over nothing is of whole numbers, to which no microseconds can be added.
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
    """Weigh both strategies and take the better, or the one that is wanted.

    The better is that whose busiest worker has less to do, where every partition has a worker and all of them share
    the router's work; unless the other saves a good part of all processor time and keeps that worker little longer.
    """
    assigned = {one: assign_queries(weights, count, one) for one in STRATEGIES}
    divisions = {one: weigh_assignment(weights, assigned[one], count, one) for one in STRATEGIES}
    if wanted is not None:
        strategy, why = wanted, "as the settings say"
    else:
        strategy, why = _better(*divisions.values())
    cut = _cut_groups(weights, assigned[strategy], count) if strategy == "grouped" else ""
    return ChosenAssignment(
        assigned[strategy],
        strategy,
        tuple(one.weighed for one in divisions.values()),
        divisions[strategy],
        f"{_NAMES[strategy]}, {why}: {'; '.join(map(_told, divisions.values()))}{cut}",
    )


_NAMES: dict[Strategy, str] = {
    "grouped": "related queries are kept together",
    "spread": "related queries are dealt out",
}


def _better(one: WeighedAssignment, other: WeighedAssignment) -> tuple[Strategy, str]:
    """The better of two (where nothing is better, the first), and why."""
    lighter, heavier = (one, other) if one.busiest <= other.busiest else (other, one)
    whole = heavier.weighed.microseconds, lighter.weighed.microseconds
    if whole[0] < (1.0 - _SAVED) * whole[1] and heavier.busiest <= _LONGER * lighter.busiest:
        return heavier.weighed.strategy, "which takes much less processor time, and its busiest worker little more"
    if heavier.busiest <= _ALIKE * lighter.busiest:
        lesser = one if one.weighed.microseconds <= _ALIKE * other.weighed.microseconds else other
        return lesser.weighed.strategy, "which takes no more time than the other way"
    return lighter.weighed.strategy, "which leaves the busiest worker less to do"


def _told(division: WeighedAssignment) -> str:
    weighed = division.weighed
    return (
        f"{weighed.strategy}: {weighed.copies:.2f} copies of an item, {weighed.microseconds:,.1f} µs in all, "
        f"{division.busiest:,.1f} µs on the busiest worker, if every partition had one"
    )


def _cut_groups(weights: Weights, partitions: Array, count: int) -> str:
    """How many groups are in more than one partition, in words."""
    pairs = np.unique(weights.groups * count + partitions)
    cut = int(np.count_nonzero(np.bincount(pairs // count) > 1))
    if not cut:
        return ""
    several = "group is" if cut == 1 else "groups are"
    return f"; {cut:,} {several} in several partitions, to load all alike"
