"""Detect that partitions have uneven loads, and rebalance them.

In: the partition of each query, and the measured loads of the partitions. Out: a new partition for every query, or
None if nothing can be gained. Few queries move and few partitions change, because the folders of changed partitions
have to be written again. Partitions are rebalanced only if they are clearly uneven, and only until they are well
below that limit, so that the next check finds them even.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.errors import RunnelError
from runnel.scaleout.partitioning import Assignment

UNEVEN_RATIO = 1.5
"""Loads are uneven if one partition takes more than this multiple of the mean time."""

MIN_MICROSECONDS = 10_000_000.0
"""The total time that must have been measured before loads count as uneven: ten seconds."""

_MAX_TIME_RATIO = 0.9
"""Queries are moved only if this reduces the time of the busiest partition to at most this fraction."""

_MAX_QUERY_RATIO = 2.0
"""No partition receives more queries than this multiple of its fair share, because memory is limited, too."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a partition: the items that were routed to it, their matches, and the CPU time."""

    partition: int
    items: int
    matches: int
    microseconds: float


def skew(loads: Sequence[Load]) -> float:
    """Return the time of the busiest partition as a multiple of the mean, or 1.0 if there is no load.

    >>> skew([Load(0, 10, 4, 300.0), Load(1, 10, 4, 100.0)])
    1.5
    """
    return _skew(np.array([_spent(load) for load in loads], dtype=np.float64)) if loads else 1.0


def is_uneven(
    loads: Sequence[Load], *, uneven_ratio: float = UNEVEN_RATIO, min_microseconds: float = MIN_MICROSECONDS
) -> bool:
    """Return whether enough was measured, and one partition takes much longer than the others.

    >>> is_uneven([Load(0, 10, 4, 9e7), Load(1, 10, 4, 1e7)]), is_uneven([Load(0, 10, 4, 9.0), Load(1, 10, 4, 1.0)])
    (True, False)
    """
    return sum(_spent(load) for load in loads) >= min_microseconds and skew(loads) > uneven_ratio


def _spent(load: Load) -> float:
    """Return the time of a partition; negative and non-finite values count as zero."""
    return max(0.0, load.microseconds) if math.isfinite(load.microseconds) else 0.0


def _skew(times: Array) -> float:
    total = float(times.sum())
    return float(times.max()) * len(times) / total if total > 0 else 1.0


def rebalanced(
    assignment: Assignment,
    loads: Sequence[Load],
    *,
    matches: Array | None = None,
    uneven_ratio: float = UNEVEN_RATIO,
    min_microseconds: float = MIN_MICROSECONDS,
) -> Array | None:
    """Return new partition numbers by query, or None if nothing should change.

    `loads` contains all partitions, including those without items. `matches` are measured matches by query, in the
    order of the assignment and over the same time.
    """
    times = _times(assignment, loads)
    if not is_uneven(loads, uneven_ratio=uneven_ratio, min_microseconds=min_microseconds) or len(times) < 2:
        return None
    rebalancer = _Rebalancer(assignment, query_times(assignment, times, matches), times, uneven_ratio)
    rebalancer.run()
    if float(rebalancer.times.max()) > _MAX_TIME_RATIO * float(times.max()):
        return None
    return rebalancer.partitions


def _times(assignment: Assignment, loads: Sequence[Load]) -> Array:
    """Return the time of every partition, or zero for a partition that is not in `loads`."""
    numbers = np.array([load.partition for load in loads], dtype=np.int64)
    if len(numbers) and int(numbers.min()) < 0:
        raise RunnelError(f"there is no partition {int(numbers.min())}", hint="partitions are numbered from 0 on")
    count = 1 + int(max(numbers.max(initial=-1), assignment.partitions.max(initial=-1)))
    spent = np.array([_spent(load) for load in loads], dtype=np.float64)
    return np.bincount(numbers, weights=spent, minlength=count)


def query_times(assignment: Assignment, times: Array, matches: Array | None = None) -> Array:
    """Distribute the time of each partition over its queries, in proportion to their expected costs.

    If matches were measured, half of the time is distributed in proportion to them, because queries with many matches
    also cause many scans.
    """
    partitions, count = assignment.partitions, len(times)
    expected = np.nan_to_num(assignment.microseconds.astype(np.float64), posinf=0.0)
    fractions = _fractions(np.maximum(expected, 0.0), partitions, count)
    if matches is not None:
        counts = np.maximum(np.nan_to_num(matches.astype(np.float64)), 0.0)
        is_measured = np.bincount(partitions, weights=counts, minlength=count)[partitions] > 0
        fractions = np.where(is_measured, (fractions + _fractions(counts, partitions, count)) / 2, fractions)
    return np.asarray(fractions * times[partitions])


def _fractions(amounts: Array, partitions: Array, count: int) -> Array:
    """Return the amount of each query as a fraction of its partition's total; all equal if the total is zero."""
    totals = np.bincount(partitions, weights=amounts, minlength=count)
    sizes = np.bincount(partitions, minlength=count)
    has_total = totals[partitions] > 0
    return np.where(has_total, amounts / np.where(totals > 0, totals, 1.0)[partitions], 1.0 / sizes[partitions])


class _Rebalancer:
    """Moves groups of queries from the busiest partitions to those with the least load."""

    def __init__(self, assignment: Assignment, spent: Array, times: Array, uneven_ratio: float) -> None:
        self.partitions = assignment.partitions.astype(np.int64)
        self.times = times.copy()
        self._groups, self._spent = assignment.groups, spent
        self._mean = float(times.mean())
        self._max_time = self._mean * (1.0 + (uneven_ratio - 1.0) / 2)
        """Partitions with at most this time are not changed. It is well below the limit for uneven loads."""
        self._sizes = np.bincount(self.partitions, minlength=len(times))
        self._max_size = max(_MAX_QUERY_RATIO * len(spent) / len(times), 1.0)

    def run(self) -> None:
        """Move queries until no partition is above the maximum time, or nothing more can be moved."""
        done = np.zeros(len(self.times), dtype=bool)
        while True:
            busy = np.where(done, -np.inf, self.times)
            hot = int(np.argmax(busy))
            if busy[hot] <= self._max_time:
                return
            idle = np.flatnonzero((self.times < self._mean) & (self._sizes < self._max_size))
            moved = any(self._move(hot, int(cold)) for cold in idle[np.argsort(self.times[idle], kind="stable")])
            done[hot] = not moved

    def _move(self, hot: int, cold: int) -> bool:
        """Move queries from a busy partition to one with a low load. Return whether any were moved."""
        own = np.flatnonzero(self.partitions == hot)
        chosen = self._limit_queries(self._choose_queries(own, hot, cold), int(self._max_size - self._sizes[cold]))
        spent = float(self._spent[chosen].sum())
        if spent <= 0.0:
            return False
        self.partitions[chosen] = cold
        self.times[hot] -= spent
        self.times[cold] += spent
        self._sizes[hot] -= len(chosen)
        self._sizes[cold] += len(chosen)
        return True

    def _limit_queries(self, chosen: Array, limit: int) -> Array:
        """Keep at most `limit` of the chosen queries, the most expensive groups first. Split groups if allowed."""
        if len(chosen) <= limit:
            return chosen
        numbers, groups = np.unique(self._groups[chosen], return_inverse=True)
        kept: list[Array] = []
        for group in np.argsort(-np.bincount(groups, weights=self._spent[chosen]), kind="stable").tolist():
            members = chosen[groups == group]
            if len(members) > limit:
                if numbers[group] < 0:
                    continue
                members = members[np.argsort(-self._spent[members], kind="stable")[:limit]]
            kept.append(members)
            limit -= len(members)
        return np.concatenate(kept) if kept else chosen[:0]

    def _choose_queries(self, own: Array, hot: int, cold: int) -> Array:
        """Choose queries to move: a single group that suffices, whole groups that fit, or a part of the largest."""
        if not len(own):
            return own
        numbers, groups = np.unique(self._groups[own], return_inverse=True)
        totals = np.bincount(groups, weights=self._spent[own])
        room, excess = self._max_time - self.times[cold], self.times[hot] - self._mean
        needed = self.times[hot] - self._max_time
        alone = np.flatnonzero((totals <= room) & (totals >= needed))
        if len(alone):
            return np.asarray(own[groups == alone[np.argmin(totals[alone])]])
        chosen = _choose_fitting(np.where(totals > 0, totals, np.inf), min(room, excess), needed)
        if chosen.any():
            return np.asarray(own[chosen[groups]])
        # Groups with negative numbers share an expensive question to an operator and must not be split.
        divisible = np.where(numbers >= 0, totals, -np.inf)
        members = own[(groups == int(np.argmax(divisible))) & (divisible.max() > 0)]
        chosen_members = _choose_fitting(self._spent[members], min(self._mean - self.times[cold], excess), excess)
        if chosen_members.any():
            return np.asarray(members[chosen_members])
        return self._least_bad(own, groups, totals, members, hot, cold)

    def _least_bad(self, own: Array, groups: Array, totals: Array, members: Array, hot: int, cold: int) -> Array:
        """Choose the group, or else the query among `members`, whose move reduces the higher of the two loads most.

        Choose nothing if that does not reduce it enough.
        """
        for amounts, of_groups in ((totals, True), (self._spent[members], False)):
            after = np.maximum(self.times[hot] - amounts, self.times[cold] + amounts)
            if len(after) and after.min() <= _MAX_TIME_RATIO * self.times[hot]:
                best = int(np.argmin(after))
                return np.asarray(own[groups == best] if of_groups else members[best : best + 1])
        return own[:0]


def _choose_fitting(amounts: Array, room: float, enough: float) -> Array:
    """Choose amounts, largest first, that together fit into `room`, until they reach `enough`.

    >>> _choose_fitting(np.array([5.0, 3.0, 1.0, 1.0, 0.2]), 4.5, 3.5).tolist()
    [False, True, True, False, False]
    """
    is_chosen = np.zeros(len(amounts), dtype=bool)
    order = np.argsort(-amounts, kind="stable")
    ordered = amounts[order]
    start, left, missing = 0, room, enough
    while missing > 0:
        # Skip all amounts that do not fit at once, then take a whole run of those that do.
        start += int(np.searchsorted(-ordered[start:], -left))
        sums = np.cumsum(ordered[start:])
        run = min(int(np.searchsorted(sums, left, side="right")), 1 + int(np.searchsorted(sums, missing)))
        if not run:
            break
        is_chosen[order[start : start + run]] = True
        left, missing, start = left - float(sums[run - 1]), missing - float(sums[run - 1]), start + run
    return is_chosen
