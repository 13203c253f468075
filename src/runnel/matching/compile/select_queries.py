"""Matching against some queries of a plan, by the same contract: their matches and no others.

In: a loaded plan and the ids of some of its queries. Out: a plan in which the others are as good as removed. The walk
stays that of the whole plan, so it pays where many are selected or few items asked; else a small plan is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from runnel.arrays import Array
from runnel.plan.gates import query_of
from runnel.plan.store import Plan, PlanPart

_COMPILING = 5e-4
"""Seconds to compile one query into a plan of its own (measured: benchmarks/subset.py)."""

_WALKING = 1.5e-10
"""Seconds that an item costs more in a large plan than in a small one, for every query of the large one."""

_NOTHING_TO_GAIN = 0.02
"""Seconds of compiling that nobody notices: not even the large plan is opened for them."""


@dataclass(frozen=True)
class SelectedPlan(Plan):
    """A plan of which only the selected queries (ids, ascending) count."""

    selected: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def removed(self, part: PlanPart) -> Array:
        """Which queries of a part (by position) do not count."""
        return np.asarray(super().removed(part) | ~np.isin(part.queries.query_ids, self.selected))


def select_queries(plan: Plan, queries: Iterable[int], *, from_start: bool = False) -> Plan:
    """The plan with these of its queries alone; ids that it does not have are passed over.

    With `from_start`, they match every item, however early it was accepted.
    """
    base, delta = plan.base, plan.delta
    if from_start:
        base, delta = _from_start(base), None if delta is None else _from_start(delta)
    return SelectedPlan(plan.version, base, delta, np.unique(np.fromiter(queries, dtype=np.int64)))


def _from_start(part: PlanPart) -> PlanPart:
    return replace(part, stored=replace(part.stored, query_since=np.zeros_like(part.stored.query_since)))


def gated_queries(plan: Plan) -> set[int]:
    """The queries that are matched by ways (see `gates` and `operators`): no selection of them can be cut out."""
    ways = [ids for part in plan.parts for ids in (part.queries.gates.disjuncts, part.queries.operators.way_ids)]
    return set(query_of(np.concatenate(ways)).tolist())


def compiling_pays(selected: int, queries: int, items: int) -> bool:
    """Whether so many of a plan's queries are better compiled anew, to match so many items.

    >>> compiling_pays(10, 100_000, 1), compiling_pays(1_000, 100_000, 1), compiling_pays(1_000, 100_000, 100_000)
    (True, False, True)
    """
    return selected * _COMPILING <= max(_NOTHING_TO_GAIN, items * queries * _WALKING)
