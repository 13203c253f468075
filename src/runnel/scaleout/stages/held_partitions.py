"""The router and the partitions that a worker process has mapped, within a budget.

In: a version as a slice names it. Out: what routes and matches with it. Room is made before the next is mapped, and
no whole plan stays mapped next to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast

from runnel.matching.compile.loaded_plan import LoadedPlan
from runnel.matching.costs.observe_stream import Observer
from runnel.plan.store import PlanVersion, read_manifest
from runnel.scaleout.partitioning import Partitioning, read_partitioning
from runnel.scaleout.route.loaded_partition import PartitionPlan, delta_plan, load_partition, load_router
from runnel.scaleout.route.plan_lru import PlanLru
from runnel.scaleout.route.router import Router
from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.worker.plan_cache import CachedPlan, register_holder, release_whole_plans


@dataclass(frozen=True)
class Routing:
    """What the first stage needs of a version: the router, and the queries that are in no partition yet."""

    piece: PartitionPlan
    router: Router
    observer: Observer
    fresh: CachedPlan | None

    @property
    def bytes(self) -> int:
        """The bytes of the files that it maps."""
        return self.piece.bytes + (0 if self.fresh is None else self.fresh.bytes)

    def mappings(self) -> tuple[object, ...]:
        """Objects that exist for exactly as long as its files are mapped."""
        own = LoadedPlan(self.piece, self.router.matcher).mappings()
        return own if self.fresh is None else own + self.fresh.mappings()


_Piece = TypeVar("_Piece", CachedPlan, Routing)
_Key = tuple[str, str]
"""A piece by its storage and folder."""


@lru_cache(maxsize=4)
def partitioning_at(storage_url: str, folder: str) -> Partitioning:
    """How a version is divided."""
    return read_partitioning(open_storage(storage_url), folder)


@lru_cache(maxsize=1)
def held_pieces(budget: int) -> PlanLru[_Key, CachedPlan | Routing]:
    """The pieces that this process has mapped."""
    held = PlanLru[_Key, CachedPlan | Routing](budget)
    register_holder(held)
    return held


@lru_cache(maxsize=4)
def _delta_bytes(storage_url: str, folder: str) -> int:
    """The bytes of a delta; asked for with every slice."""
    return read_manifest(open_storage(storage_url), folder).size


def routing_of(storage: Storage, version: PlanVersion, budget: int) -> Routing:
    """The first stage of a version."""
    divided = partitioning_at(storage.url, version.distribution or "")
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
    one = partitioning_at(storage.url, version.distribution or "").partitions[number]

    def make() -> CachedPlan:
        return CachedPlan.of(load_partition(storage, version, one.folder))

    return _held(storage, one.folder, version, one.bytes, budget, make)


def is_partition_held(storage: Storage, version: PlanVersion, number: int, budget: int) -> bool:
    """Whether a partition of a version is mapped in this process."""
    folder = partitioning_at(storage.url, version.distribution or "").partitions[number].folder
    return held_pieces(budget).is_held((storage.url, folder))


def _held(
    storage: Storage, folder: str, version: PlanVersion, size: int, budget: int, make: Callable[[], _Piece]
) -> _Piece:
    """A piece as a version has it, from those that are held."""
    release_whole_plans()
    return cast(_Piece, held_pieces(budget).get((storage.url, folder), size, make, edition=version))
