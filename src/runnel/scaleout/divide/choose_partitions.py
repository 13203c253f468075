"""Into how many partitions the queries of a plan are divided.

In: what the plan takes, what a worker may have of it, and how many workers there are. Out: the number, and why. A
plan that fits is not divided: a worker that has all of it takes an item apart once, where partitions do so again for
every copy, and need a second stage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from runnel.engine.planning.ports import byte_count, reason_for_whole_plan
from runnel.errors import RunnelError
from runnel.scaleout.divide.weigh_queries import COPY

MOST = 1_024
"""No plan is divided into more."""

ROUTER = 1 / 16
"""The part of the plan that the router takes, at most."""

UNEVEN = 1.15
"""The largest partition, over what it would be if all were alike."""

_HELD = 2
"""Partitions that a worker has room for: one that is matched, and one that is being loaded."""


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """How many partitions, 1 for a plan that every worker has whole, and why; `brief` is why in few words."""

    count: int
    reason: str
    brief: str


def choose_partitions(
    *, queries: int, plan_bytes: int, budget_bytes: int, cores: int, wanted: int = 0
) -> PartitionChoice:
    """How many partitions a plan should have; `wanted` of 1 or more is what the settings say.

    Even then there are no more partitions than queries: the rest would be empty folders.

    >>> choose_partitions(queries=9, plan_bytes=5 << 20, budget_bytes=4 << 30, cores=4).count
    1
    >>> choose_partitions(queries=10**7, plan_bytes=5 << 30, budget_bytes=4 << 30, cores=4).count
    4
    """
    if cores < 1 or wanted < 0 or budget_bytes < 1:
        raise RunnelError(
            f"{cores} cores, {wanted} partitions and {budget_bytes} bytes of memory cannot be",
            hint="give one core, partition and byte or more",
        )
    takes = f"the plan takes {byte_count(plan_bytes)} and a worker may map {byte_count(budget_bytes)}"
    whole = reason_for_whole_plan(queries=queries, plan_bytes=plan_bytes, budget_bytes=budget_bytes, wanted=wanted)
    if whole is not None:
        return PartitionChoice(1, f"{whole}: {_WHOLE}" if whole == takes else whole, whole)
    if wanted:
        return _as_wanted(wanted, queries)
    needed = _needed(plan_bytes, budget_bytes)
    count = min(_rounded(needed, cores), queries, MOST)
    each = UNEVEN * plan_bytes / count
    if count < needed:
        return PartitionChoice(
            count,
            f"{takes}: in {count:,} partitions, which are the most there can be, of up to {byte_count(each)}; "
            "not all that a worker needs at once may fit",
            takes,
        )
    even = f"; with {cores:,} cores, as many as they share evenly" if count % cores == 0 and cores > 1 else ""
    return PartitionChoice(
        count,
        f"{takes}: in {count:,} partitions of up to {byte_count(each)}, the router, one partition and another "
        f"that is being loaded fit{even}",
        takes,
    )


def _as_wanted(wanted: int, queries: int) -> PartitionChoice:
    if wanted > queries:
        fewer = f"instead of the {wanted:,} of the settings, as there are {queries:,} queries"
        return PartitionChoice(queries, fewer, fewer)
    return PartitionChoice(wanted, "as many partitions as the settings say", "as the settings say")


_WHOLE = (
    f"every worker has all of it, which costs least; of partitions, each would take an item apart again "
    f"({COPY:.0f} µs), after a stage that says which"
)


def _needed(plan_bytes: int, budget_bytes: int) -> int:
    """So many that the router, one partition and another that is loaded fit."""
    # A plan of which the router alone takes half of what a worker may have is divided as if it took no more.
    room = max(budget_bytes - ROUTER * plan_bytes, budget_bytes / 2)
    return max(2, math.ceil(_HELD * UNEVEN * plan_bytes / room))


def _rounded(needed: int, cores: int) -> int:
    """The next number that cores share evenly, unless that is more than twice as many."""
    even = math.ceil(needed / cores) * cores
    return even if even <= 2 * needed else needed
