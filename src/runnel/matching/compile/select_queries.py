"""Select queries of a loaded plan, so that only these match.

In: a loaded plan and the ids of some of its queries. Out: a plan in which the other queries count as removed.
Matching still reads the index of the whole plan, so a selection pays for many queries or few items. Otherwise
compiling a small plan is cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from runnel.arrays import Array
from runnel.plan.gates import query_of
from runnel.plan.store import Plan, PlanPart

_COMPILE_SECONDS = 5e-4
"""Seconds to compile one query into a small plan (measured with benchmarks/subset.py)."""

_MATCH_SECONDS = 1.5e-10
"""Additional seconds per item in a large plan compared with a small one, per query of the large plan."""

_NEGLIGIBLE_SECONDS = 0.02
"""Compiling for up to this many seconds is not noticed, so it always pays."""


@dataclass(frozen=True)
class SelectedPlan(Plan):
    """A plan of which only the selected queries match. `selected` are their ids in ascending order."""

    selected: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def removed(self, part: PlanPart) -> Array:
        """Return a mask over the queries of a part (by position) that marks removed and unselected queries."""
        return np.asarray(super().removed(part) | ~np.isin(part.queries.query_ids, self.selected))


def select_queries(plan: Plan, queries: Iterable[int], *, from_start: bool = False) -> Plan:
    """Return the plan with only these queries. Ids that are not in the plan are ignored.

    With `from_start`, the queries match all items, including those before their starts.
    """
    base, delta = plan.base, plan.delta
    if from_start:
        base, delta = _from_start(base), None if delta is None else _from_start(delta)
    return SelectedPlan(plan.version, base, delta, np.unique(np.fromiter(queries, dtype=np.int64)))


def _from_start(part: PlanPart) -> PlanPart:
    return replace(part, stored=replace(part.stored, query_since=np.zeros_like(part.stored.query_since)))


def gated_queries(plan: Plan) -> set[int]:
    """Return the queries with disjuncts (see `plan.gates` and `plan.operator_table`), which cannot be selected."""
    disjuncts = [
        ids for part in plan.parts for ids in (part.queries.gates.disjuncts, part.queries.operators.disjunct_ids)
    ]
    return set(query_of(np.concatenate(disjuncts)).tolist())


def compiling_pays(selected: int, queries: int, items: int) -> bool:
    """Return whether compiling `selected` of a plan's `queries` is faster than selecting them, for `items` items.

    >>> compiling_pays(10, 100_000, 1), compiling_pays(1_000, 100_000, 1), compiling_pays(1_000, 100_000, 100_000)
    (True, False, True)
    """
    return selected * _COMPILE_SECONDS <= max(_NEGLIGIBLE_SECONDS, items * queries * _MATCH_SECONDS)
