"""Plans in a Spark worker, and all that is made of them.

In: a version as a slice names it. Out: what matches with it. A worker needs two whole plans: the batch's, and the one
before it while tasks overlap. A worker that holds parts of plans instead keeps them elsewhere, in a `PlanHolder`, and
never has both: whole plans count in no budget.
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
from runnel.streaming.worker.operator_work import declarations_at, learned_at

DEFAULT_BUDGET = 4 << 30
"""Bytes of plans that a process has mapped at once, unless the settings say otherwise."""


@dataclass(frozen=True)
class CachedPlan(LoadedPlan):
    """A plan, or a part of one, and all that is made of it; with what operators decide in it."""

    _deciders: dict[Hashable, Decider] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan) -> CachedPlan:
        """All that is made of a plan."""
        return CachedPlan(plan, build_matcher(plan))

    def decider(self, operators: Operators, storage: Storage, brief: OperatorSnapshot) -> Decider | None:
        """What operators decide here, as the brief has it; None where they decide nothing.

        It goes with the plan: whoever kept it longer would keep the plan's files mapped.
        """
        if not len(self.plan.operators):
            return None
        operators.use(declarations_at(storage.url, brief.declared), brief.segments)
        if brief.learned not in self._deciders:
            self._deciders.clear()
            self._deciders[brief.learned] = operators.new_decider(self.plan, learned_at(storage, brief.learned))
        return self._deciders[brief.learned]


class PlanHolder(Protocol):
    """Holds parts of plans in this process."""

    def clear(self) -> None:
        """Release all of them."""
        ...


_holders: WeakSet[PlanHolder] = WeakSet()


def register_holder(holder: PlanHolder) -> None:
    """Have a holder cleared before this process loads a whole plan."""
    _holders.add(holder)


def loaded_plan(storage_url: str, version: PlanVersion) -> tuple[CachedPlan, Observer]:
    """A whole plan. Parts of plans are released first."""
    _clear_holders()
    return _whole_plan(storage_url, version)


@lru_cache(maxsize=2)
def _whole_plan(storage_url: str, version: PlanVersion) -> tuple[CachedPlan, Observer]:
    loaded = CachedPlan.of(load(open_storage(storage_url), version))
    return loaded, Observer.of(loaded.plan.base)


def forget_plans() -> None:
    """Release all plans and parts of plans."""
    _clear_holders()
    release_whole_plans()


def _clear_holders() -> None:
    for holder in _holders:
        holder.clear()


def release_whole_plans() -> None:
    """Release all whole plans, so that none stays mapped next to parts of plans."""
    if _whole_plan.cache_info().currsize:
        _whole_plan.cache_clear()
        forget_parts()
        gc.collect()  # a matcher refers to itself through others, so that only this finds it unused
