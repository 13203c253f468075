"""The two stages of a divided plan, for slices: to which partitions items go, and what they match there.

Both stages run in the same process where a worker does everything itself, and in two where Spark's keyed stage keeps
partitions apart. What goes from the first to the second is a slice and the rows that were chosen, a bit for each.
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
    held_pieces,
    is_partition_held,
    partition_of,
    partitioning_at,
    routing_of,
)
from runnel.storage.file_storage import Storage
from runnel.streaming.operator_snapshot import OperatorSnapshot
from runnel.streaming.worker.match_buffer import MatchBuffer
from runnel.streaming.worker.plan_cache import CachedPlan

_COUNTED_ONCE = ("items", "naive_evaluations")
"""What is counted where an item is routed, not again in every partition."""


@dataclass(frozen=True, slots=True)
class RoutedSlice:
    """A slice, and the rows of it that go to a partition as a bitmap."""

    slice: Slice
    chosen: bytes

    @property
    def items(self) -> int:
        """How many items go there."""
        return int.from_bytes(self.chosen).bit_count()


def route_slice(
    storage: Storage, version: PlanVersion, one: Slice, found: MatchBuffer, brief: OperatorSnapshot, budget: int
) -> Iterator[tuple[int, bytes]]:
    """Stage one: match what is in no partition yet, and give the partitions that items go to, each with its rows."""
    items = read_items(storage, one)
    with _counting_loads(found, budget):
        routing = routing_of(storage, version, budget)
    if routing.fresh is not None:
        found.add(storage, items, routing.fresh, brief)
    else:
        found.counters["items"] += len(items)
    found.observe(items, routing.observer)
    divided = partitioning_at(storage.url, version.distribution or "").partitions
    found.counters["naive_evaluations"] += len(items) * sum(part.queries for part in divided)
    choices = routing.router.route(items).choices
    for number in np.flatnonzero(choices.any(axis=0)).tolist():
        yield number, packed(choices[:, number])


def held_first(storage: Storage, version: PlanVersion, numbers: Iterable[int], budget: int) -> list[int]:
    """Partitions in the order in which they are best matched: whoever went round in circles would reload them all."""
    return sorted(numbers, key=lambda number: (not is_partition_held(storage, version, number, budget), number))


def match_routed(
    storage: Storage,
    version: PlanVersion,
    routed: Sequence[RoutedSlice],
    number: int,
    found_for: Callable[[RoutedSlice], MatchBuffer],
    brief: OperatorSnapshot,
    budget: int,
) -> None:
    """Stage two: match the rows that came to a partition; `found_for` says where what is found of a slice belongs."""
    first = found_for(routed[0])
    with _counting_loads(first, budget):
        before = held_pieces(budget).counters.loads
        loaded = partition_of(storage, version, number, budget)
        loads = held_pieces(budget).counters.loads - before
    for one in routed:
        found = found_for(one)
        items = chosen_items(read_items(storage, one.slice), one.chosen)
        _add_routed(found, storage, items, loaded, brief, number)
    first.work[number]["loads"] += loads


def _add_routed(
    found: MatchBuffer,
    storage: Storage,
    items: ItemBatch,
    partition: CachedPlan,
    brief: OperatorSnapshot,
    number: int,
) -> None:
    """Match the items that were routed to a partition, and note what the partition took."""
    began, matches, unmatched = process_time_ns(), found.matches, found.unmatched
    counted_before = {name: found.counters[name] for name in _COUNTED_ONCE}
    found.add(storage, items, partition, brief)
    found.counters.update({name: before - found.counters[name] for name, before in counted_before.items()})
    found.counters["copies"] += len(items)
    found.counters["copies_in_vain"] += found.unmatched - unmatched
    found.work.setdefault(number, Counter()).update(
        items=len(items),
        matches=found.matches - matches,
        microseconds=(process_time_ns() - began) // 1000,
    )


@contextmanager
def _counting_loads(found: MatchBuffer, budget: int) -> Iterator[None]:
    """Count the plans that are loaded inside, and of these the ones that were here before."""
    held = held_pieces(budget).counters
    loads, reloads = held.loads, held.reloads
    yield
    found.counters["plan_loads"] += held.loads - loads
    found.counters["plan_reloads"] += held.reloads - reloads


def chosen_items(items: ItemBatch, chosen: bytes) -> ItemBatch:
    """The items whose bit is set."""
    rows: Any = unpacked(chosen, len(items))
    return items if rows.all() else ItemBatch(items.records.take(pa.array(np.flatnonzero(rows))))
