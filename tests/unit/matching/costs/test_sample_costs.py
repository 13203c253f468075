"""What sampled items show of the cost of queries: the work is counted where it is done, and shared fairly."""

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
from runnel.matching.costs.sample_costs import CostSampler, _PartCosts, _some
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.query_costs import Costs, merged_costs
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-costs-")
STORAGE = FileStorage(Path(_root.name).as_uri())
TITLE = Attribute("title")
WIRE = 1


@pytest.fixture(autouse=True)
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks a microsecond when it is looked at: what is timed takes just that."""
    monkeypatch.setattr("runnel.matching.costs.sample_costs.perf_counter_ns", itertools.count(0, 1_000).__next__)


def plan_of(conditions: Mapping[int, Expression], later: Mapping[int, Expression] | None = None) -> Plan:
    """A plan of queries on one source; those that come later are a delta."""
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
    """Every item sampled once."""
    sampler = CostSampler(plan)
    return merged_costs([sampler.sample(batch(title), 0) for title in titles])


REGULAR = RegularExpression(TITLE, "r[aeiou]ck.*(live|tour)")
CHEAP = {query: Contains(TITLE, (f"w{query}",)) for query in range(10, 60)}


def test_the_dear_query_is_told_with_the_part_that_costs() -> None:
    costs = sampled(plan_of(CHEAP | {7: REGULAR}), *["w11 w12 some rock on tour"] * 5)
    assert costs.items == 5
    dearest = max(costs.queries, key=lambda query: costs.queries[query].nanoseconds)
    assert dearest == 7
    assert costs.queries[7].kind == "RegularExpression"
    assert costs.queries[7].part == "title matches 'r[aeiou]ck.*(live|tour)'"
    assert set(costs.queries) <= {7, 11, 12}, "an item gives work to those alone that it leads to"
    assert costs.queries[11].kind == "Walk"
    assert costs.queries[11].part == "title contains 'w11'"


def test_a_condition_that_a_rare_word_guards_costs_nothing_where_the_word_is_missing() -> None:
    plan = plan_of(
        {7: And((Contains(TITLE, ("zydeco",)), REGULAR)), 8: And((Compare(Attribute("n"), "<", -1.0), REGULAR))}
    )
    costs = sampled(plan, "rock on tour", "rock live")
    assert 7 not in costs.queries
    assert costs.queries[8].kind == "Walk", "the number decides before anything is evaluated"
    assert sampled(plan, "zydeco rock live").queries[7].kind == "RegularExpression"


def test_what_several_queries_share_is_shared_among_them() -> None:
    alone = sampled(plan_of({7: REGULAR}), *["rock on tour"] * 20)
    same = sampled(plan_of(dict.fromkeys(range(7, 27), REGULAR)), *["rock on tour"] * 20)
    assert set(same.queries) == set(range(7, 27))
    assert len({round(one.nanoseconds, 3) for one in same.queries.values()}) == 1
    assert same.queries[7].nanoseconds == pytest.approx(alone.queries[7].nanoseconds / 20, rel=0.1)

    # The same expression in different conditions is evaluated once for an item, too.
    guards = {query: And((Not(Contains(TITLE, (f"w{query}",))), REGULAR)) for query in range(7, 27)}
    guarded = sampled(plan_of(guards), *["rock on tour"] * 20)
    assert guarded.queries[7].nanoseconds < alone.queries[7].nanoseconds / 10


def test_many_are_told_by_some_of_them() -> None:
    many = {query: RegularExpression(TITLE, f"x{query}y+") for query in range(100, 400)}
    sampler = CostSampler(plan_of(many))
    whole = merged_costs([sampler.sample(batch("rock on tour"), chance) for chance in range(0, 300, 7)])
    few = sampler.sample(batch("rock on tour"), 3)
    assert len(few.queries) < 60
    assert len(whole.queries) == 300, "each has its turn"


def test_what_is_new_counts_and_what_is_gone_does_not() -> None:
    plan = plan_of({7: REGULAR, 8: REGULAR}, later={8: Contains(TITLE, ("tour",)), 9: REGULAR})
    costs = sampled(plan, "rock on tour")
    assert {query: cost.kind for query, cost in costs.queries.items()} == {
        7: "RegularExpression",
        8: "Walk",
        9: "RegularExpression",
    }


def test_similar_texts_and_stems_cost_their_words() -> None:
    likes = {7: Similar(TITLE, ("rock", "am", "ring"), Fraction(1, 2))}
    costs = sampled(plan_of(likes), "rock am ring " + "word " * 300)
    assert costs.queries[7].kind == "Similar"
    assert costs.queries[7].nanoseconds > 1_000


def test_nothing_is_sampled_of_nothing_and_what_is_laid_out_once_is_kept() -> None:
    plan = plan_of({7: REGULAR})
    sampler = CostSampler(plan)
    assert sampler.sample(batch(), 0) == Costs()
    assert sampler.sample(batch("rock"), 0).items == 1
    assert layout_of(plan.base) is layout_of(plan.base)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(worlds(), st.integers(0, 1000))
def test_any_plan_and_item_can_be_sampled_and_leaves_no_trace(world: GeneratedWorld, chance: int) -> None:
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
def test_whoever_matches_an_item_was_looked_at_for_it(world: GeneratedWorld) -> None:
    folder = f"world-{next(_folders)}"
    ids = sorted([*world.definitions, *SOURCES[:2]])
    compile_base(STORAGE, folder, map(PlanQuery, ids), world.definitions)
    plan = load(STORAGE, PlanVersion(1, folder))
    part = _PartCosts(CostLayout(plan.base), ~plan.removed(plan.base))
    matches = build_matcher(plan).match(world.batch)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_MOST_WALKED", 10**6), ("_MOST_SHARING", 10**6), ("_LEAST", 0.0)):
            patch.setattr(sample_costs, name, value)
        for row in range(len(world.batch)):
            costs = part.sample(ItemBatch(world.batch.records.slice(row, 1)), 1, 0)
            assert set(matches.row(row).tolist()) <= set(costs.queries)


@pytest.mark.parametrize("count", [0, 1, 4, 5, 17, 1000])
def test_some_stand_for_all(count: int) -> None:
    found = list(_some(count, 4, 123))
    assert len({place for place, _ in found}) == len(found) == min(count, 4)
    assert sum(scale for _, scale in found) == pytest.approx(count)
    assert all(0 <= place < count for place, _ in found)
