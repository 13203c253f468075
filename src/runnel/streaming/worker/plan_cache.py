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
from runnel.scaleout.route.loaded_partition import PlanPiece, WorkingPiece, delta_piece, load_piece, load_router
from runnel.scaleout.route.plan_lru import HeldPlans
from runnel.scaleout.route.router import Router
from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.operator_snapshot import OperatorBrief
from runnel.streaming.worker.operator_work import learned_at

DEFAULT_BUDGET = 4 << 30
"""Bytes of plans that a process has mapped at once, unless the settings say otherwise."""


@dataclass(frozen=True)
class Loaded(WorkingPiece):
    """A plan, or a piece of one, and all that is made of it; with what operators decide in it."""

    _deciders: dict[Hashable, Decider] = field(default_factory=dict)

    @staticmethod
    def of(plan: Plan) -> Loaded:
        """All that is made of a plan."""
        return Loaded(plan, build_matcher(plan))

    def decider(self, operators: Operators, storage: Storage, brief: OperatorBrief) -> Decider | None:
        """What operators decide here, as the brief has it; None where they decide nothing.

        It goes with the plan: whoever kept it longer would keep the plan's files mapped.
        """
        if not len(self.plan.operators):
            return None
        operators.use(brief.declarations, brief.segments)
        if brief.learned not in self._deciders:
            self._deciders.clear()
            self._deciders[brief.learned] = operators.new_decider(self.plan, learned_at(storage, brief.learned))
        return self._deciders[brief.learned]


@dataclass(frozen=True)
class Routing:
    """What the first stage needs of a version: the router, and what is in no partition yet."""

    piece: PlanPiece
    router: Router
    observer: Observer
    fresh: Loaded | None

    @property
    def bytes(self) -> int:
        """The bytes of the files that it maps."""
        return self.piece.bytes + (0 if self.fresh is None else self.fresh.bytes)

    def mappings(self) -> tuple[object, ...]:
        """What is there for exactly as long as its files are mapped."""
        own = WorkingPiece(self.piece, self.router.matcher).mappings()
        return own if self.fresh is None else own + self.fresh.mappings()


_Piece = TypeVar("_Piece", Loaded, Routing)
_Key = tuple[str, str]
"""A piece by its storage and folder."""


def loaded_plan(storage_url: str, version: PlanVersion) -> tuple[Loaded, Observer]:
    """A whole plan. Pieces of a divided one are let go of: a process needs one or the other."""
    _let_go_of_pieces()
    return _whole_plan(storage_url, version)


@lru_cache(maxsize=2)
def _whole_plan(storage_url: str, version: PlanVersion) -> tuple[Loaded, Observer]:
    loaded = Loaded.of(load(open_storage(storage_url), version))
    return loaded, Observer.of(loaded.plan.base)


def forget_plans() -> None:
    """Let go of all plans and pieces."""
    _let_go_of_pieces()
    held_plans.cache_clear()
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


_all_held: WeakSet[HeldPlans[_Key, Loaded | Routing]] = WeakSet()


@lru_cache(maxsize=1)
def held_plans(budget: int) -> HeldPlans[_Key, Loaded | Routing]:
    """The pieces that this process has mapped."""
    held = HeldPlans[_Key, Loaded | Routing](budget)
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
        fresh = delta_piece(storage, version, router)
        loaded = None if fresh is None else Loaded.of(fresh)
        return Routing(router, Router(router, len(divided.partitions)), Observer.of(router.base), loaded)

    return _held(storage, divided.router, version, size, budget, make)


def partition_of(storage: Storage, version: PlanVersion, number: int, budget: int) -> Loaded:
    """A partition of a version, to match with."""
    one = partitioning_of(storage.url, version.partitioning or "").partitions[number]

    def make() -> Loaded:
        return Loaded.of(load_piece(storage, version, one.folder))

    return _held(storage, one.folder, version, one.bytes, budget, make)


def is_partition_held(storage: Storage, version: PlanVersion, number: int, budget: int) -> bool:
    """Whether a partition of a version is mapped in this process."""
    folder = partitioning_of(storage.url, version.partitioning or "").partitions[number].folder
    return held_plans(budget).is_held((storage.url, folder))


def _held(
    storage: Storage, folder: str, version: PlanVersion, size: int, budget: int, make: Callable[[], _Piece]
) -> _Piece:
    """A piece as a version has it, from what is held."""
    _let_go_of_whole_plans()
    return cast(_Piece, held_plans(budget).get((storage.url, folder), size, make, edition=version))
