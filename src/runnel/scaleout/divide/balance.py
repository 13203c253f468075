"""When partitions are loaded unevenly, and how they are divided anew.

In: which query is in which partition, and what was measured of the partitions. Out: a partition for every query, with
few of them moved and few partitions touched (the folders of those are made anew), or None where nothing is to be
gained. What is left alone is left alone: partitions are divided anew only when they are clearly uneven, and then not
to the last microsecond, so that a next look at them finds them even.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.errors import RunnelError
from runnel.scaleout.partitioning import Assignment

ENOUGH = 1.5
"""Partitions are uneven where one has so many times the time of all in the mean."""

LEAST_MICROSECONDS = 10_000_000.0
"""What must have been measured of all partitions before anything is said of them: ten seconds."""

_GAIN = 0.9
"""Queries are moved only where the busiest partition is then expected to have at most this part of its time."""

_CROWDED = 2.0
"""No partition is given more than so many times its fair share of the queries: bytes are a limit too."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a partition did: the items that came to it, what they matched, and the processor time it took."""

    partition: int
    items: int
    matches: int
    microseconds: float


def skew(loads: Sequence[Load]) -> float:
    """The time of the busiest partition over that of all in the mean; 1.0 where all are alike, or nothing was done.

    >>> skew([Load(0, 10, 4, 300.0), Load(1, 10, 4, 100.0)])
    1.5
    """
    return _skew(np.array([_spent(one) for one in loads], dtype=np.float64)) if loads else 1.0


def is_uneven(
    loads: Sequence[Load], *, enough: float = ENOUGH, least_microseconds: float = LEAST_MICROSECONDS
) -> bool:
    """Whether enough was measured, and one partition takes much longer than the others.

    >>> is_uneven([Load(0, 10, 4, 9e7), Load(1, 10, 4, 1e7)]), is_uneven([Load(0, 10, 4, 9.0), Load(1, 10, 4, 1.0)])
    (True, False)
    """
    return sum(_spent(one) for one in loads) >= least_microseconds and skew(loads) > enough


def _spent(load: Load) -> float:
    """The time of a partition; what is no number is nothing."""
    return max(0.0, load.microseconds) if math.isfinite(load.microseconds) else 0.0


def _skew(times: Array) -> float:
    total = float(times.sum())
    return float(times.max()) * len(times) / total if total > 0 else 1.0


def rebalanced(
    assignment: Assignment,
    loads: Sequence[Load],
    *,
    matches: Array | None = None,
    enough: float = ENOUGH,
    least_microseconds: float = LEAST_MICROSECONDS,
) -> Array | None:
    """New partition numbers by query, or None where all may stay as it is.

    `loads` has all partitions, also those that nothing came to. `matches` are measured matches by query, in the order
    of the assignment, over the same time.
    """
    times = _times(assignment, loads)
    if not is_uneven(loads, enough=enough, least_microseconds=least_microseconds) or len(times) < 2:
        return None
    moving = _Moving(assignment, query_times(assignment, times, matches), times, enough)
    moving.run()
    if float(moving.times.max()) > _GAIN * float(times.max()):
        return None
    return moving.partitions


def _times(assignment: Assignment, loads: Sequence[Load]) -> Array:
    """The time of every partition; one that has no load did nothing."""
    numbers = np.array([one.partition for one in loads], dtype=np.int64)
    if len(numbers) and int(numbers.min()) < 0:
        raise RunnelError(f"there is no partition {int(numbers.min())}", hint="partitions are numbered from 0 on")
    count = 1 + int(max(numbers.max(initial=-1), assignment.partitions.max(initial=-1)))
    spent = np.array([_spent(one) for one in loads], dtype=np.float64)
    return np.bincount(numbers, weights=spent, minlength=count)


def query_times(assignment: Assignment, times: Array, matches: Array | None = None) -> Array:
    """What every query had of its partition's time: in proportion to what was expected of it.

    Where matches were measured, half of the time goes by these: what matches much was walked much.
    """
    partitions, count = assignment.partitions, len(times)
    expected = np.nan_to_num(assignment.microseconds.astype(np.float64), posinf=0.0)
    parts = _parts(np.maximum(expected, 0.0), partitions, count)
    if matches is not None:
        known = np.maximum(np.nan_to_num(matches.astype(np.float64)), 0.0)
        measured = np.bincount(partitions, weights=known, minlength=count)[partitions] > 0
        parts = np.where(measured, (parts + _parts(known, partitions, count)) / 2, parts)
    return np.asarray(parts * times[partitions])


def _parts(amounts: Array, partitions: Array, count: int) -> Array:
    """What each query has of its partition; where nothing is known, all have the same."""
    totals = np.bincount(partitions, weights=amounts, minlength=count)
    sizes = np.bincount(partitions, minlength=count)
    known = totals[partitions] > 0
    return np.where(known, amounts / np.where(totals > 0, totals, 1.0)[partitions], 1.0 / sizes[partitions])


class _Moving:
    """Partitions while groups are moved from the busiest to those that do least."""

    def __init__(self, assignment: Assignment, spent: Array, times: Array, enough: float) -> None:
        self.partitions = assignment.partitions.astype(np.int64)
        self.times = times.copy()
        self._groups, self._spent = assignment.groups, spent
        self._mean = float(times.mean())
        self._wanted = self._mean * (1.0 + (enough - 1.0) / 2)
        """A partition with no more than this is left alone: well below what would be uneven again."""
        self._sizes = np.bincount(self.partitions, minlength=len(times))
        self._most = max(_CROWDED * len(spent) / len(times), 1.0)

    def run(self) -> None:
        """Move until no partition is above what is wanted, or those that are cannot give anything."""
        done = np.zeros(len(self.times), dtype=bool)
        while True:
            busy = np.where(done, -np.inf, self.times)
            hot = int(np.argmax(busy))
            if busy[hot] <= self._wanted:
                return
            idle = np.flatnonzero((self.times < self._mean) & (self._sizes < self._most))
            moved = any(self._move(hot, int(cold)) for cold in idle[np.argsort(self.times[idle], kind="stable")])
            done[hot] = not moved

    def _move(self, hot: int, cold: int) -> bool:
        """Move what the one has too much and the other has room for; whether anything was."""
        own = np.flatnonzero(self.partitions == hot)
        chosen = self._that_fit(self._chosen(own, hot, cold), int(self._most - self._sizes[cold]))
        spent = float(self._spent[chosen].sum())
        if spent <= 0.0:
            return False
        self.partitions[chosen] = cold
        self.times[hot] -= spent
        self.times[cold] += spent
        self._sizes[hot] -= len(chosen)
        self._sizes[cold] += len(chosen)
        return True

    def _that_fit(self, chosen: Array, most: int) -> Array:
        """Of the chosen queries at most so many: the dearest groups, and of the last that may be divided a part."""
        if len(chosen) <= most:
            return chosen
        numbers, groups = np.unique(self._groups[chosen], return_inverse=True)
        kept: list[Array] = []
        for group in np.argsort(-np.bincount(groups, weights=self._spent[chosen]), kind="stable").tolist():
            members = chosen[groups == group]
            if len(members) > most:
                if numbers[group] < 0:
                    continue
                members = members[np.argsort(-self._spent[members], kind="stable")[:most]]
            kept.append(members)
            most -= len(members)
        return np.concatenate(kept) if kept else chosen[:0]

    def _chosen(self, own: Array, hot: int, cold: int) -> Array:
        """The queries to move: a group that is enough, or whole groups that fit, or else a part of the largest."""
        if not len(own):
            return own
        numbers, groups = np.unique(self._groups[own], return_inverse=True)
        totals = np.bincount(groups, weights=self._spent[own])
        room, excess = self._wanted - self.times[cold], self.times[hot] - self._mean
        needed = self.times[hot] - self._wanted
        alone = np.flatnonzero((totals <= room) & (totals >= needed))
        if len(alone):
            return np.asarray(own[groups == alone[np.argmin(totals[alone])]])
        taken = _fitting(np.where(totals > 0, totals, np.inf), min(room, excess), needed)
        if taken.any():
            return np.asarray(own[taken[groups]])
        # Those who ask an operator the same dear question have negative numbers: each part would ask it again.
        divisible = np.where(numbers >= 0, totals, -np.inf)
        members = own[(groups == int(np.argmax(divisible))) & (divisible.max() > 0)]
        some = _fitting(self._spent[members], min(self._mean - self.times[cold], excess), excess)
        if some.any():
            return np.asarray(members[some])
        return self._least_bad(own, groups, totals, members, hot, cold)

    def _least_bad(self, own: Array, groups: Array, totals: Array, members: Array, hot: int, cold: int) -> Array:
        """A group, or one of some queries, that is too much for the other partition but still more so for this."""
        for amounts, of_groups in ((totals, True), (self._spent[members], False)):
            after = np.maximum(self.times[hot] - amounts, self.times[cold] + amounts)
            if len(after) and after.min() <= _GAIN * self.times[hot]:
                best = int(np.argmin(after))
                return np.asarray(own[groups == best] if of_groups else members[best : best + 1])
        return own[:0]


def _fitting(amounts: Array, room: float, enough: float) -> Array:
    """Which of the amounts to take so that they fit, and no more than are enough: the largest first.

    >>> _fitting(np.array([5.0, 3.0, 1.0, 1.0, 0.2]), 4.5, 3.5).tolist()
    [False, True, True, False, False]
    """
    taken = np.zeros(len(amounts), dtype=bool)
    order = np.argsort(-amounts, kind="stable")
    ordered = amounts[order]
    place, left, missing = 0, room, enough
    while missing > 0:
        # Those that do not fit are passed at once; of those that do, a whole run is taken.
        place += int(np.searchsorted(-ordered[place:], -left))
        sums = np.cumsum(ordered[place:])
        run = min(int(np.searchsorted(sums, left, side="right")), 1 + int(np.searchsorted(sums, missing)))
        if not run:
            break
        taken[order[place : place + run]] = True
        left, missing, place = left - float(sums[run - 1]), missing - float(sums[run - 1]), place + run
    return taken
