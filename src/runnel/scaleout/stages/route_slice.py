"""The two stages of matching with a partitioned plan: route the items of a slice, then match them in partitions.

In a job with a keyed stage the two stages run in different processes; otherwise a worker runs both. The first stage
passes a slice and a bitmap of its rows to the second, for each partition that receives any of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time_ns
from typing import Any

import numpy as np
import pyarrow as pa

from runnel.logs.items.item_files import read_items
from runnel.model.item_batch import ItemBatch
from runnel.model.segment import Slice
from runnel.plan.store import PlanVersion
from runnel.scaleout.route.router import packed, unpacked
from runnel.scaleout.stages.held_partitions import (
    is_partition_cached,
    load_cached_partition,
    load_routing,
    loaded_plans,
    partitioning_at,
)
from runnel.storage.file_storage import Storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.match_buffer import MatchBuffer
from runnel.streaming.worker.plan_cache import CachedPlan

_COUNTED_ONCE = ("items", "naive_evaluations")
"""Counters that count an item when it is routed, and not again in each partition."""


@dataclass(frozen=True, slots=True)
class RoutedSlice:
    """A slice, and a bitmap of its rows that go to a partition."""

    slice: Slice
    chosen: bytes

    @property
    def items(self) -> int:
        """The number of items that go to the partition."""
        return int.from_bytes(self.chosen).bit_count()


def route_slice(
    storage: Storage,
    version: PlanVersion,
    slice_: Slice,
    buffer: MatchBuffer,
    snapshot: OperatorSnapshot,
    budget: int,
) -> Iterator[tuple[int, bytes]]:
    """Stage one: match a slice with the delta, and route it.

    Yield each partition that receives items, with a bitmap of their rows.
    """
    items = read_items(storage, slice_)
    with _counting_loads(buffer, budget):
        routing = load_routing(storage, version, budget)
    if routing.delta is not None:
        buffer.add(storage, items, routing.delta, snapshot)
    else:
        buffer.counters["items"] += len(items)
    buffer.observe(items, routing.observer)
    partitions = partitioning_at(storage.url, version.distribution or "").partitions
    buffer.counters["naive_evaluations"] += len(items) * sum(partition.queries for partition in partitions)
    choices = routing.router.route(items).choices
    for number in np.flatnonzero(choices.any(axis=0)).tolist():
        yield number, packed(choices[:, number])


def cached_partitions_first(storage: Storage, version: PlanVersion, numbers: Iterable[int], budget: int) -> list[int]:
    """Sort partitions so that cached ones come first. In a fixed order, an LRU cache would reload all of them."""
    return sorted(numbers, key=lambda number: (not is_partition_cached(storage, version, number, budget), number))


def match_routed(
    storage: Storage,
    version: PlanVersion,
    routed: Sequence[RoutedSlice],
    number: int,
    buffer_for: Callable[[RoutedSlice], MatchBuffer],
    snapshot: OperatorSnapshot,
    budget: int,
) -> None:
    """Stage two: match the items that were routed to a partition. `buffer_for` returns the buffer for a slice."""
    first_buffer = buffer_for(routed[0])
    with _counting_loads(first_buffer, budget):
        before = loaded_plans(budget).counters.loads
        partition = load_cached_partition(storage, version, number, budget)
        loads = loaded_plans(budget).counters.loads - before
    for routed_slice in routed:
        items = chosen_items(read_items(storage, routed_slice.slice), routed_slice.chosen)
        _add_routed(buffer_for(routed_slice), storage, items, partition, snapshot, number)
    first_buffer.work[number]["loads"] += loads


def _add_routed(
    buffer: MatchBuffer,
    storage: Storage,
    items: ItemBatch,
    partition: CachedPlan,
    snapshot: OperatorSnapshot,
    number: int,
) -> None:
    """Match the items that were routed to a partition, and record the load of the partition."""
    started, matches, unmatched = process_time_ns(), buffer.matches, buffer.unmatched
    counted_before = {name: buffer.counters[name] for name in _COUNTED_ONCE}
    buffer.add(storage, items, partition, snapshot)
    for name, before in counted_before.items():
        buffer.counters[name] = before  # the items were counted when they were routed
    buffer.counters["copies"] += len(items)
    buffer.counters["unmatched_copies"] += buffer.unmatched - unmatched
    buffer.work.setdefault(number, Counter()).update(
        items=len(items),
        matches=buffer.matches - matches,
        microseconds=(process_time_ns() - started) // 1000,
    )


@contextmanager
def _counting_loads(buffer: MatchBuffer, budget: int) -> Iterator[None]:
    """Count the plans that are loaded inside, and how many of them had been evicted before."""
    counters = loaded_plans(budget).counters
    loads, reloads = counters.loads, counters.reloads
    yield
    buffer.counters["plan_loads"] += counters.loads - loads
    buffer.counters["plan_reloads"] += counters.reloads - reloads


def chosen_items(items: ItemBatch, chosen: bytes) -> ItemBatch:
    """Return the items whose bit is set."""
    rows: Any = unpacked(chosen, len(items))
    return items if rows.all() else ItemBatch(items.records.take(pa.array(np.flatnonzero(rows))))
