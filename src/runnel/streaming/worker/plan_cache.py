"""The plans that a Spark worker has loaded, with their matchers and deciders.

In: a plan version from the row of a slice. Out: a matcher. A worker caches two whole plans: that of the current batch
and, while tasks overlap, that of the batch before. Partitions of distributed plans are cached elsewhere, in a
`PlanHolder`. A worker never has both in memory, because whole plans do not count towards the memory budget.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol
from weakref import WeakSet

from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.loaded_plan import LoadedPlan
from runnel.matching.costs.observe_stream import Observer
from runnel.matching.operators.decide.decider import Decider
from runnel.matching.operators.decide.operators_in_process import Operators
from runnel.plan.store import Plan, PlanVersion, forget_parts, load
from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.operator_work import load_declarations, load_statistics

DEFAULT_BUDGET = 4 << 30
"""Default limit for the bytes of plans that a process maps at once."""


@dataclass(frozen=True)
class CachedPlan(LoadedPlan):
    """A plan, or a partition of one, with its matcher and, if it calls operators, its decider."""

    _deciders: dict[Hashable, Decider] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan) -> CachedPlan:
        """Build the matcher of a plan."""
        return CachedPlan(plan, build_matcher(plan))

    def decider(self, operators: Operators, storage: Storage, snapshot: OperatorSnapshot) -> Decider | None:
        """Return the decider for a snapshot of the operators, or None if the plan calls no operators.

        The decider is cached here because it must be released with the plan: it keeps the plan's files mapped.
        """
        if not len(self.plan.operators):
            return None
        operators.use(load_declarations(storage.url, snapshot.declared), snapshot.segments)
        if snapshot.learned not in self._deciders:
            self._deciders.clear()
            statistics = load_statistics(storage, snapshot.learned)
            self._deciders[snapshot.learned] = operators.new_decider(self.plan, statistics)
        return self._deciders[snapshot.learned]


class PlanHolder(Protocol):
    """Caches partitions of plans in this process."""

    def clear(self) -> None:
        """Release all cached partitions."""
        ...


_holders: WeakSet[PlanHolder] = WeakSet()


def register_holder(holder: PlanHolder) -> None:
    """Register a holder that is cleared before this process loads a whole plan."""
    _holders.add(holder)


def load_whole_plan(storage_url: str, version: PlanVersion) -> tuple[CachedPlan, Observer]:
    """Load a whole plan and its observer, or return them from the cache. Release partitions of plans first."""
    _clear_holders()
    return _whole_plan(storage_url, version)


@lru_cache(maxsize=2)
def _whole_plan(storage_url: str, version: PlanVersion) -> tuple[CachedPlan, Observer]:
    cached = CachedPlan.of(load(open_storage(storage_url), version))
    return cached, Observer.of(cached.plan.base)


def release_all_plans() -> None:
    """Release all whole plans and all partitions of plans."""
    _clear_holders()
    release_whole_plans()


def _clear_holders() -> None:
    for holder in _holders:
        holder.clear()


def release_whole_plans() -> None:
    """Release all whole plans, so that none stays mapped together with partitions of plans."""
    if _whole_plan.cache_info().currsize:
        _whole_plan.cache_clear()
        forget_parts()
        gc.collect()  # a matcher is part of a reference cycle, so only the cyclic collector frees it
