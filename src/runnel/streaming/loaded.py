"""Plans in a Spark worker, and all that is made of them, held within a budget.

In: a version as a slice names it. Out: what matches with it. A worker that has the whole plan needs two: the batch's,
and the one before it while tasks overlap. A worker that matches in partitions holds as many as fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar, cast

from runnel.log.storage import Storage, open_storage
from runnel.matching.build import build_matcher
from runnel.matching.observe import Observer
from runnel.matching.operators.decide import Decider
from runnel.matching.operators.work import Operators
from runnel.matching.partitions.held import HeldPlans
from runnel.matching.partitions.pieces import PlanPiece, WorkingPiece, delta_piece, load_piece, load_router
from runnel.matching.partitions.routing import Router
from runnel.plan.partitioning import Partitioning, read_partitioning
from runnel.plan.store import Plan, PlanVersion, load
from runnel.streaming.operator_brief import OperatorBrief
from runnel.streaming.operator_work import learned_at

DEFAULT_BUDGET = 4 << 30
"""Bytes of plans that a process has mapped at once, unless the settings say otherwise."""

_ROUTER = -1
"""In place of the number of a partition."""


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
        """Its files are few and always needed: they may stay mapped a little longer."""
        return ()


_Piece = TypeVar("_Piece", Loaded, Routing)
_Key = tuple[tuple[str, str, int], PlanVersion]
"""A piece by its storage, folder and number, and the version that it is of."""


@lru_cache(maxsize=2)
def loaded_plan(storage_url: str, version: PlanVersion) -> tuple[Loaded, Observer]:
    """A whole plan."""
    loaded = Loaded.of(load(open_storage(storage_url), version))
    return loaded, Observer.of(loaded.plan.base)


@lru_cache(maxsize=4)
def partitioning_of(storage_url: str, folder: str) -> Partitioning:
    """How a version is divided."""
    return read_partitioning(open_storage(storage_url), folder)


@lru_cache(maxsize=1)
def held_plans(budget: int) -> HeldPlans[_Key, Loaded | Routing]:
    """The pieces that this process has mapped."""
    return HeldPlans(budget)


def routing_of(storage: Storage, version: PlanVersion, budget: int) -> Routing:
    """The first stage of a version."""
    folder = version.partitioning or ""
    divided = partitioning_of(storage.url, folder)

    def make() -> Routing:
        router = load_router(storage, version, divided.router)
        fresh = delta_piece(storage, version, router)
        loaded = None if fresh is None else Loaded.of(fresh)
        return Routing(router, Router(router, len(divided.partitions)), Observer.of(router.base), loaded)

    return _held((storage.url, folder, _ROUTER), version, divided.router_bytes, budget, make)


def partition_of(storage: Storage, version: PlanVersion, number: int, budget: int) -> Loaded:
    """A partition of a version, to match with."""
    divided = partitioning_of(storage.url, version.partitioning or "")
    one = divided.partitions[number]

    def make() -> Loaded:
        return Loaded.of(load_piece(storage, version, one.folder))

    return _held((storage.url, one.folder, number), version, one.bytes, budget, make)


def is_partition_held(storage: Storage, version: PlanVersion, number: int, budget: int) -> bool:
    """Whether a partition of a version is mapped in this process."""
    folder = partitioning_of(storage.url, version.partitioning or "").partitions[number].folder
    return held_plans(budget).is_held(((storage.url, folder, number), version))


def _held(
    piece: tuple[str, str, int], version: PlanVersion, size: int, budget: int, make: Callable[[], _Piece]
) -> _Piece:
    """A piece of a version, from what is held. The same of an earlier version goes first: no batch needs it again."""
    held = held_plans(budget)
    if not held.is_held((piece, version)):
        held.drop(lambda other: other[0] == piece and other[1] != version)
    return cast(_Piece, held.get((piece, version), size, make))
