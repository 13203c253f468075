"""Choose the number of partitions of a plan.

In: the size of the plan, the memory budget of a worker, and the number of cores. Out: the number of partitions, and
the reason. A plan that fits into the budget is not partitioned: with the whole plan, a worker parses an item once,
whereas each partition that receives a copy parses the item again, after an additional stage for routing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from runnel.engine.planning.ports import byte_count, reason_for_whole_plan
from runnel.errors import RunnelError
from runnel.scaleout.divide.weigh_queries import COPY

MAX_PARTITIONS = 1_024

ROUTER_FRACTION = 1 / 16
"""The maximum size of the router, as a fraction of the plan."""

MAX_SIZE_RATIO = 1.15
"""The expected size of the largest partition, as a multiple of the mean."""

_LOADED_PARTITIONS = 2
"""Partitions that must fit into the budget: one that is matched, and one that is being loaded."""


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """The number of partitions, and the reason for it in full and in a few words. 1 means that there are none."""

    count: int
    reason: str
    brief: str


def choose_partitions(
    *, queries: int, plan_bytes: int, budget_bytes: int, cores: int, wanted: int = 0
) -> PartitionChoice:
    """Choose the number of partitions of a plan. `wanted` is the number in the settings; 0 means automatic.

    There are never more partitions than queries, because the others would be empty.

    >>> choose_partitions(queries=9, plan_bytes=5 << 20, budget_bytes=4 << 30, cores=4).count
    1
    >>> choose_partitions(queries=10**7, plan_bytes=5 << 30, budget_bytes=4 << 30, cores=4).count
    4
    """
    if cores < 1 or wanted < 0 or budget_bytes < 1:
        raise RunnelError(
            f"cannot choose partitions for {cores} cores, {wanted} partitions and a budget of {budget_bytes} bytes",
            hint="cores and budget must be at least 1, and partitions at least 0",
        )
    takes = f"the plan takes {byte_count(plan_bytes)} and a worker may map {byte_count(budget_bytes)}"
    whole = reason_for_whole_plan(queries=queries, plan_bytes=plan_bytes, budget_bytes=budget_bytes, wanted=wanted)
    if whole is not None:
        return PartitionChoice(1, f"{whole}: {_WHOLE}" if whole == takes else whole, whole)
    if wanted:
        return _choose_wanted(wanted, queries)
    needed = _needed_partitions(plan_bytes, budget_bytes)
    count = min(_round_to_cores(needed, cores), queries, MAX_PARTITIONS)
    largest = MAX_SIZE_RATIO * plan_bytes / count
    if count < needed:
        return PartitionChoice(
            count,
            f"{takes}: there can be at most {count:,} partitions, of up to {byte_count(largest)}, so the router and "
            "two partitions may not fit into the memory of a worker",
            takes,
        )
    even = f"; their number is a multiple of the {cores:,} cores" if count % cores == 0 and cores > 1 else ""
    return PartitionChoice(
        count,
        f"{takes}: with {count:,} partitions of up to {byte_count(largest)}, the router and two partitions fit into "
        f"the memory of a worker{even}",
        takes,
    )


def _choose_wanted(wanted: int, queries: int) -> PartitionChoice:
    if wanted > queries:
        fewer = f"instead of the {wanted:,} in the settings, because there are only {queries:,} queries"
        return PartitionChoice(queries, fewer, fewer)
    return PartitionChoice(wanted, "the number is set in the settings", "as the settings say")


_WHOLE = (
    f"every worker loads the whole plan, which costs least; each partition that an item is routed to would parse the "
    f"item again ({COPY:.0f} µs), after an additional stage for routing"
)


def _needed_partitions(plan_bytes: int, budget_bytes: int) -> int:
    """Return the smallest number of partitions with which the router and two partitions fit into the budget."""
    # If the router takes more than half of the budget, assume that it takes half.
    bytes_left = max(budget_bytes - ROUTER_FRACTION * plan_bytes, budget_bytes / 2)
    return max(2, math.ceil(_LOADED_PARTITIONS * MAX_SIZE_RATIO * plan_bytes / bytes_left))


def _round_to_cores(needed: int, cores: int) -> int:
    """Round up to a multiple of the cores, unless the result is more than twice as large."""
    even = math.ceil(needed / cores) * cores
    return even if even <= 2 * needed else needed
