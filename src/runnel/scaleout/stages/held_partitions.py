"""The router and the partitions that a worker process has loaded, within a memory budget.

In: a plan version from the row of a slice. Out: a router, or a partition to match with. Before a partition
is mapped, enough other partitions are released to stay in the budget, and all whole plans are released.
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
    """What the first stage needs of a version: the router, and the delta, whose queries are in no partition yet."""

    plan: PartitionPlan
    router: Router
    observer: Observer
    delta: CachedPlan | None

    @property
    def bytes(self) -> int:
        """The size of the mapped files."""
        return self.plan.bytes + (0 if self.delta is None else self.delta.bytes)

    def mappings(self) -> tuple[object, ...]:
        """Return objects that exist for exactly as long as the files are mapped."""
        of_router = LoadedPlan(self.plan, self.router.matcher).mappings()
        return of_router if self.delta is None else of_router + self.delta.mappings()


_Loaded = TypeVar("_Loaded", CachedPlan, Routing)
_Key = tuple[str, str]
"""The storage URL and the folder of a router or partition."""


@lru_cache(maxsize=4)
def partitioning_at(storage_url: str, folder: str) -> Partitioning:
    """Read a partitioning, or return it from the cache."""
    return read_partitioning(open_storage(storage_url), folder)


@lru_cache(maxsize=1)
def loaded_plans(budget: int) -> PlanLru[_Key, CachedPlan | Routing]:
    """Return the cache of the routers and partitions that this process has loaded."""
    plans = PlanLru[_Key, CachedPlan | Routing](budget)
    register_holder(plans)
    return plans


@lru_cache(maxsize=4)
def _delta_bytes(storage_url: str, folder: str) -> int:
    """Return the size of a delta, cached because it is needed for every slice."""
    return read_manifest(open_storage(storage_url), folder).size


def load_routing(storage: Storage, version: PlanVersion, budget: int) -> Routing:
    """Return the router and the delta of a version, loaded if they are not cached."""
    partitioning = partitioning_at(storage.url, version.distribution or "")
    size = partitioning.router_bytes
    if version.delta is not None:
        size += _delta_bytes(storage.url, version.delta)

    def load() -> Routing:
        plan = load_router(storage, version, partitioning.router)
        delta = delta_plan(storage, version, plan)
        cached_delta = None if delta is None else CachedPlan.of(delta)
        return Routing(plan, Router(plan, len(partitioning.partitions)), Observer.of(plan.base), cached_delta)

    return _get_or_load(storage, partitioning.router, version, size, budget, load)


def load_cached_partition(storage: Storage, version: PlanVersion, number: int, budget: int) -> CachedPlan:
    """Return a partition of a version, loaded if it is not cached."""
    partition = partitioning_at(storage.url, version.distribution or "").partitions[number]

    def load() -> CachedPlan:
        return CachedPlan.of(load_partition(storage, version, partition.folder))

    return _get_or_load(storage, partition.folder, version, partition.bytes, budget, load)


def is_partition_cached(storage: Storage, version: PlanVersion, number: int, budget: int) -> bool:
    """Return whether this process has loaded a partition, for this version or an earlier one."""
    folder = partitioning_at(storage.url, version.distribution or "").partitions[number].folder
    return loaded_plans(budget).is_held((storage.url, folder))


def _get_or_load(
    storage: Storage, folder: str, version: PlanVersion, size: int, budget: int, load: Callable[[], _Loaded]
) -> _Loaded:
    """Return a plan from the cache, or load it if the cache does not have it for this version."""
    release_whole_plans()
    return cast(_Loaded, loaded_plans(budget).get((storage.url, folder), size, load, edition=version))
