"""Sampled costs of queries: work is attributed to the queries that cause it, and shared work is divided."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.optimizer.generated_worlds import SOURCES, GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression, Not, RegularExpression, Similar
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.costs import sample_costs
from runnel.matching.costs.cost_layout import CostLayout, layout_of
from runnel.matching.costs.sample_costs import CostSampler, _PartCosts, _sample_indices
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.query_costs import Costs, merged_costs
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_folder = tempfile.TemporaryDirectory(prefix="runnel-costs-")
STORAGE = FileStorage(Path(_folder.name).as_uri())
TITLE = Attribute("title")
WIRE = 1


@pytest.fixture(autouse=True)
def ticking_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the clock by one that advances a microsecond per reading, so that every timed step takes that long."""
    monkeypatch.setattr("runnel.matching.costs.sample_costs.perf_counter_ns", itertools.count(0, 1_000).__next__)


def plan_of(conditions: Mapping[int, Expression], later: Mapping[int, Expression] | None = None) -> Plan:
    """Build a plan of queries on one source; the queries in `later` are its delta."""
    base, delta = f"base-{next(_folders)}", f"delta-{next(_folders)}"
    compile_base(STORAGE, base, map(PlanQuery, conditions), nodes(conditions))
    if later is None:
        return load(STORAGE, PlanVersion(1, base))
    compile_delta(STORAGE, delta, map(PlanQuery, later), nodes(later), later, base)
    return load(STORAGE, PlanVersion(2, base, delta))


def nodes(conditions: Mapping[int, Expression]) -> dict[int, Node]:
    return {query: Filter(Read(WIRE), condition) for query, condition in conditions.items()}


def batch(*titles: str) -> ItemBatch:
    items = [Item("Wire", str(n), {"title": (title,), "n": (float(n),)}) for n, title in enumerate(titles)]
    return ItemBatch.of(items, {"Wire": WIRE})


def sampled(plan: Plan, *titles: str) -> Costs:
    """Return the merged costs of items with these titles, each sampled once."""
    sampler = CostSampler(plan)
    return merged_costs([sampler.sample(batch(title), 0) for title in titles])


REGULAR = RegularExpression(TITLE, "r[aeiou]ck.*(live|tour)")
CHEAP = {query: Contains(TITLE, (f"w{query}",)) for query in range(10, 60)}


def test_most_expensive_query_is_reported_with_its_costliest_condition() -> None:
    costs = sampled(plan_of(CHEAP | {7: REGULAR}), *["w11 w12 some rock on tour"] * 5)
    assert costs.items == 5
    costliest = max(costs.queries, key=lambda query: costs.queries[query].nanoseconds)
    assert costliest == 7
    assert costs.queries[7].kind == "RegularExpression"
    assert costs.queries[7].part == "title matches 'r[aeiou]ck.*(live|tour)'"
    assert set(costs.queries) <= {7, 11, 12}, "only queries that the item leads to have costs"
    assert costs.queries[11].kind == "Walk"
    assert costs.queries[11].part == "title contains 'w11'"


def test_condition_after_an_unsatisfied_anchor_or_clause_costs_nothing() -> None:
    plan = plan_of(
        {7: And((Contains(TITLE, ("zydeco",)), REGULAR)), 8: And((Compare(Attribute("n"), "<", -1.0), REGULAR))}
    )
    costs = sampled(plan, "rock on tour", "rock live")
    assert 7 not in costs.queries
    assert costs.queries[8].kind == "Walk", "the number decides before the expression is evaluated"
    assert sampled(plan, "zydeco rock live").queries[7].kind == "RegularExpression"


def test_cost_of_shared_conditions_is_divided_among_queries() -> None:
    alone = sampled(plan_of({7: REGULAR}), *["rock on tour"] * 20)
    shared = sampled(plan_of(dict.fromkeys(range(7, 27), REGULAR)), *["rock on tour"] * 20)
    assert set(shared.queries) == set(range(7, 27))
    assert len({round(cost.nanoseconds, 3) for cost in shared.queries.values()}) == 1
    assert shared.queries[7].nanoseconds == pytest.approx(alone.queries[7].nanoseconds / 20, rel=0.1)

    # An expression that occurs in different conditions is evaluated once per item, too.
    guards = {query: And((Not(Contains(TITLE, (f"w{query}",))), REGULAR)) for query in range(7, 27)}
    guarded = sampled(plan_of(guards), *["rock on tour"] * 20)
    assert guarded.queries[7].nanoseconds < alone.queries[7].nanoseconds / 10


def test_costs_of_many_queries_are_sampled_in_turn() -> None:
    many = {query: RegularExpression(TITLE, f"x{query}y+") for query in range(100, 400)}
    sampler = CostSampler(plan_of(many))
    merged = merged_costs([sampler.sample(batch("rock on tour"), chance) for chance in range(0, 300, 7)])
    single = sampler.sample(batch("rock on tour"), 3)
    assert len(single.queries) < 60
    assert len(merged.queries) == 300, "every query is sampled at some time"


def test_queries_of_the_delta_have_costs_and_replaced_queries_do_not() -> None:
    plan = plan_of({7: REGULAR, 8: REGULAR}, later={8: Contains(TITLE, ("tour",)), 9: REGULAR})
    costs = sampled(plan, "rock on tour")
    assert {query: cost.kind for query, cost in costs.queries.items()} == {
        7: "RegularExpression",
        8: "Walk",
        9: "RegularExpression",
    }


def test_cost_of_similarity_includes_splitting_the_text_into_words() -> None:
    likes = {7: Similar(TITLE, ("rock", "am", "ring"), Fraction(1, 2))}
    costs = sampled(plan_of(likes), "rock am ring " + "word " * 300)
    assert costs.queries[7].kind == "Similar"
    assert costs.queries[7].nanoseconds > 1_000


def test_empty_batch_has_no_costs_and_layouts_are_cached() -> None:
    plan = plan_of({7: REGULAR})
    sampler = CostSampler(plan)
    assert sampler.sample(batch(), 0) == Costs()
    assert sampler.sample(batch("rock"), 0).items == 1
    assert layout_of(plan.base) is layout_of(plan.base)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(worlds(), st.integers(0, 1000))
def test_sampling_works_for_any_plan_and_resets_its_buffers(world: GeneratedWorld, chance: int) -> None:
    folder = f"world-{next(_folders)}"
    ids = sorted([*world.definitions, *SOURCES[:2]])
    compile_base(STORAGE, folder, map(PlanQuery, ids), world.definitions)
    plan = load(STORAGE, PlanVersion(1, folder))
    layout = CostLayout(plan.base)
    part = _PartCosts(layout, ~plan.removed(plan.base))
    for row in range(len(world.batch)):
        costs = part.sample(ItemBatch(world.batch.records.slice(row, 1)), 1, chance)
        assert set(costs.queries) <= set(ids)
        assert all(cost.nanoseconds > 0 for cost in costs.queries.values())
        assert not layout.present.any()
        assert not layout.users.any()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(worlds())
def test_every_matching_query_has_costs(world: GeneratedWorld) -> None:
    folder = f"world-{next(_folders)}"
    ids = sorted([*world.definitions, *SOURCES[:2]])
    compile_base(STORAGE, folder, map(PlanQuery, ids), world.definitions)
    plan = load(STORAGE, PlanVersion(1, folder))
    part = _PartCosts(CostLayout(plan.base), ~plan.removed(plan.base))
    matches = build_matcher(plan).match(world.batch)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_MAX_WALKED", 10**6), ("_MAX_SHARING", 10**6), ("_MIN_NANOSECONDS", 0.0)):
            patch.setattr(sample_costs, name, value)
        for row in range(len(world.batch)):
            costs = part.sample(ItemBatch(world.batch.records.slice(row, 1)), 1, 0)
            assert set(matches.row(row).tolist()) <= set(costs.queries)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 17, 1000])
def test_sampled_indices_are_distinct_and_represent_all(count: int) -> None:
    sample = list(_sample_indices(count, 4, 123))
    assert len({index for index, _ in sample}) == len(sample) == min(count, 4)
    assert sum(scale for _, scale in sample) == pytest.approx(count)
    assert all(0 <= index < count for index, _ in sample)
