"""Plans in a Spark worker, and all that is made of them, held within a budget.

In: a version as a slice names it. Out: what matches with it. A worker that has the whole plan needs two: the batch's,
and the one before it while tasks overlap. A worker that matches in partitions holds as many as fit.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar, cast
from weakref import WeakSet

from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.costs.observe_stream import Observer
from runnel.matching.operators.decide.decider import Decider
from runnel.matching.operators.decide.operators_in_process import Operators
from runnel.plan.store import Plan, PlanVersion, forget_parts, load, read_manifest
from runnel.scaleout.partitioning import Partitioning, read_partitioning
from runnel.scaleout.route.loaded_partition import (
    LoadedPartition,
    PartitionPlan,
    delta_plan,
    load_partition,
    load_router,
)
from runnel.scaleout.route.plan_lru import PlanLru
from runnel.scaleout.route.router import Router
from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.operator_work import declarations_at, learned_at

DEFAULT_BUDGET = 4 << 30
"""Bytes of plans that a process has mapped at once, unless the settings say otherwise."""


@dataclass(frozen=True)
class CachedPlan(LoadedPartition):
    """A plan, or a piece of one, and all that is made of it; with what operators decide in it."""

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


@dataclass(frozen=True)
class Routing:
    """What the first stage needs of a version: the router, and what is in no partition yet."""

    piece: PartitionPlan
    router: Router
    observer: Observer
    fresh: CachedPlan | None

    @property
    def bytes(self) -> int:
        """The bytes of the files that it maps."""
        return self.piece.bytes + (0 if self.fresh is None else self.fresh.bytes)

    def mappings(self) -> tuple[object, ...]:
        """What is there for exactly as long as its files are mapped."""
        own = LoadedPartition(self.piece, self.router.matcher).mappings()
        return own if self.fresh is None else own + self.fresh.mappings()


_Piece = TypeVar("_Piece", CachedPlan, Routing)
_Key = tuple[str, str]
"""A piece by its storage and folder."""


def loaded_plan(storage_url: str, version: PlanVersion) -> tuple[CachedPlan, Observer]:
    """A whole plan. Pieces of a divided one are let go of: a process needs one or the other."""
    _let_go_of_pieces()
    return _whole_plan(storage_url, version)


@lru_cache(maxsize=2)
def _whole_plan(storage_url: str, version: PlanVersion) -> tuple[CachedPlan, Observer]:
    loaded = CachedPlan.of(load(open_storage(storage_url), version))
    return loaded, Observer.of(loaded.plan.base)


def forget_plans() -> None:
    """Let go of all plans and pieces."""
    _let_go_of_pieces()
    cached_plans.cache_clear()
    _let_go_of_whole_plans()


def _let_go_of_pieces() -> None:
    for held in _all_held:
        held.clear()


def _let_go_of_whole_plans() -> None:
    """Whole plans are in nobody's budget: they must not stay mapped beside pieces."""
    if _whole_plan.cache_info().currsize:
        _whole_plan.cache_clear()
        forget_parts()
        gc.collect()  # what is made of a plan leads back to itself


@lru_cache(maxsize=4)
def partitioning_of(storage_url: str, folder: str) -> Partitioning:
    """How a version is divided."""
    return read_partitioning(open_storage(storage_url), folder)


_all_held: WeakSet[PlanLru[_Key, CachedPlan | Routing]] = WeakSet()


@lru_cache(maxsize=1)
def cached_plans(budget: int) -> PlanLru[_Key, CachedPlan | Routing]:
    """The pieces that this process has mapped."""
    held = PlanLru[_Key, CachedPlan | Routing](budget)
    _all_held.add(held)
    return held


@lru_cache(maxsize=4)
def _delta_bytes(storage_url: str, folder: str) -> int:
    """The bytes of a delta; asked for with every slice."""
    return read_manifest(open_storage(storage_url), folder).size


def routing_of(storage: Storage, version: PlanVersion, budget: int) -> Routing:
    """The first stage of a version."""
    divided = partitioning_of(storage.url, version.partitioning or "")
    size = divided.router_bytes
    if version.delta is not None:
        size += _delta_bytes(storage.url, version.delta)

    def make() -> Routing:
        router = load_router(storage, version, divided.router)
        fresh = delta_plan(storage, version, router)
        loaded = None if fresh is None else CachedPlan.of(fresh)
        return Routing(router, Router(router, len(divided.partitions)), Observer.of(router.base), loaded)

    return _held(storage, divided.router, version, size, budget, make)


def partition_of(storage: Storage, version: PlanVersion, number: int, budget: int) -> CachedPlan:
    """A partition of a version, to match with."""
    one = partitioning_of(storage.url, version.partitioning or "").partitions[number]

    def make() -> CachedPlan:
        return CachedPlan.of(load_partition(storage, version, one.folder))

    return _held(storage, one.folder, version, one.bytes, budget, make)


def is_partition_cached(storage: Storage, version: PlanVersion, number: int, budget: int) -> bool:
    """Whether a partition of a version is mapped in this process."""
    folder = partitioning_of(storage.url, version.partitioning or "").partitions[number].folder
    return cached_plans(budget).is_held((storage.url, folder))


def _held(
    storage: Storage, folder: str, version: PlanVersion, size: int, budget: int, make: Callable[[], _Piece]
) -> _Piece:
    """A piece as a version has it, from what is held."""
    _let_go_of_whole_plans()
    return cast(_Piece, cached_plans(budget).get((storage.url, folder), size, make, edition=version))
