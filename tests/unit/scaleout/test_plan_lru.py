"""The cache keeps plans within its budget, evicts the least recently used, and unmaps evicted plans."""

from __future__ import annotations

import gc
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.partitioned_matcher import held_first

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.entry_points import plugin_names
from runnel.matching.compile.build_matcher import GROUP
from runnel.matching.compile.compile_plan import compile_base
from runnel.matching.compile.loaded_plan import LoadedPlan
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion
from runnel.scaleout.route.loaded_partition import load_partition
from runnel.scaleout.route.plan_lru import PlanLru
from runnel.storage.file_storage import FileStorage


@dataclass
class Loaded:
    """A loaded plan that maps a number of bytes."""

    bytes: int

    def mappings(self) -> tuple[object, ...]:
        return (self,)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), max_size=30),
    st.one_of(st.none(), st.integers(0, 120)),
)
def test_cache_keeps_the_most_recently_used_plans_that_fit(
    sizes: list[int], asked: list[int], budget: int | None
) -> None:
    held = PlanLru[int, Loaded](budget)
    model: OrderedDict[int, int] = OrderedDict()
    loads = reloads = 0
    seen: set[int] = set()
    for key in (value % len(sizes) for value in asked):
        size = sizes[key]
        if key in model:
            model.move_to_end(key)
        else:
            while model and budget is not None and sum(model.values()) + size > budget:
                model.popitem(last=False)
            loads += 1
            reloads += key in seen
            seen.add(key)
            model[key] = size

        def load(size: int = size, model: OrderedDict[int, int] = model) -> Loaded:
            # Plans are evicted before loading, so the new plan fits, unless it is larger than the budget.
            assert budget is None or held.counters.held_bytes + size <= max(budget, size)
            return Loaded(size)

        assert held.get(key, size, load).bytes == size
        assert {number for number in range(len(sizes)) if held.is_held(number)} == set(model)
        assert held.counters.held_bytes == sum(model.values())
    counters = held.counters
    assert (counters.loads, counters.reloads, len(held)) == (loads, reloads, len(model))
    assert counters.evictions == loads - len(model)
    if budget is not None:
        assert counters.peak_bytes <= max([budget, *sizes])


def test_failed_load_is_not_cached_and_larger_than_announced_plan_evicts_others() -> None:
    held = PlanLru[str, Loaded](100)
    held.get("a", 60, lambda: Loaded(60))

    def breaks() -> Loaded:
        raise OSError("no such folder")

    with pytest.raises(OSError, match="no such folder"):
        held.get("b", 10, breaks)
    assert (held.is_held("a"), held.is_held("b"), held.counters.loads) == (True, False, 1)
    held.get("c", 10, lambda: Loaded(90))
    assert (held.is_held("a"), held.is_held("c"), held.counters.held_bytes) == (False, True, 90)


def test_new_edition_replaces_the_old_one_and_counts_as_renewal() -> None:
    held = PlanLru[str, Loaded](100)
    first = held.get("a", 60, lambda: Loaded(60), edition=1)
    assert held.get("a", 60, lambda: Loaded(60), edition=1) is first
    assert held.get("a", 60, lambda: Loaded(70), edition=2) is not first
    counters = held.counters
    assert (counters.loads, counters.renewals, counters.reloads, counters.evictions) == (1, 1, 0, 0)
    assert (counters.held_bytes, counters.peak_bytes, len(held)) == (70, 70, 1)
    held.get("b", 60, lambda: Loaded(60), edition=2)
    held.get("a", 60, lambda: Loaded(60), edition=3)
    assert (counters.loads, counters.renewals, counters.reloads) == (3, 1, 1), "an evicted plan is loaded again"


def test_matching_cached_plans_first_avoids_reloads() -> None:
    def reloads(in_order: bool) -> int:
        held = PlanLru[int, Loaded](40)
        for _ in range(5):
            for key in held_first(held, range(6)) if in_order else range(6):
                held.get(key, 10, lambda: Loaded(10))
        return held.counters.reloads

    assert (reloads(in_order=True), reloads(in_order=False)) == (8, 24)


@pytest.mark.parametrize("name", plugin_names(GROUP))
def test_evicted_plan_is_unmapped(name: str, tmp_path: Path) -> None:
    storage, title = FileStorage(tmp_path.as_uri()), Attribute("title")
    definitions: dict[int, Node] = {
        10 + n: Filter(Read(1), And((Contains(title, (f"w{n % 97}",)), Compare(Attribute("price"), "<", float(n)))))
        for n in range(900)
    }
    queries = [PlanQuery(feed) for feed in definitions]
    sizes = [compile_base(storage, f"piece-{n}", queries, definitions, matcher=name).size for n in range(3)]
    items = ItemBatch.of([Item("One", "1", {"title": ("w5",), "price": (300.0,)})], {"One": 1})
    held = PlanLru[int, LoadedPlan](2 * sizes[0])

    def matched(number: int) -> int:
        version = PlanVersion(1, f"piece-{number}")
        results = held.get(
            number, sizes[number], lambda: LoadedPlan.of(load_partition(storage, version, version.base))
        )
        return results.matcher.match(items).total

    def mapped() -> set[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {Path(line.split()[-1]).parent.name for line in lines if str(tmp_path) in line}

    gc.collect()
    gc.disable()  # only the cache itself may collect garbage
    try:
        assert [matched(number) for number in (0, 1, 2, 0)] == [6] * 4
        assert mapped() == {"piece-2", "piece-0"}
    finally:
        gc.enable()
    assert held.counters.to_json() == {
        "loads": 4,
        "reloads": 1,
        "renewals": 0,
        "evictions": 2,
        "held_bytes": 2 * sizes[0],
        "peak_bytes": 2 * sizes[0],
    }
