"""Routers send an item to every partition with a query for it, and without mergers to no other."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scan_matcher import ScanMatcher
from tests.unit.optimizer.generated_worlds import GeneratedWorld
from tests.unit.scaleout.related_plans import (
    PRICE,
    LaidOutPlan,
    all_worlds,
    asking,
    divisions,
    laid_out,
    routed_to,
    word,
)

from runnel.algebra.nodes.expressions import And, Compare, Not
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.arrays import Array, Rows
from runnel.model.item import Item
from runnel.plan.logical_plan import EXACT, LogicalPlan, PlanQuery
from runnel.plan.validate import validate
from runnel.scaleout.cover.cover_predicates import cover_predicates
from runnel.scaleout.cover.router_plan import _wider_scopes, router_plan
from runnel.scaleout.cover.subsuming_roots import find_subsuming_roots

ROCK, JAZZ, LIVE = word("rock"), word("jazz"), word("live")


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """Skip fsync for temporary plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def router_of(
    plan: LaidOutPlan,
    partitions: Array,
    count: int,
    most: int | None = None,
    opened: tuple[Array, Array] | None = None,
) -> LogicalPlan:
    kin = find_subsuming_roots(plan.logical, plan.atoms, plan.anchors)
    cover = cover_predicates(plan.logical, plan.atoms, plan.anchors, kin, most=most)
    made = router_plan(plan.logical, cover, partitions, count, opened=opened)
    validate("router", made, np.empty(0, dtype=np.int64))
    return made


def wanted(world: GeneratedWorld, logical: LogicalPlan, partitions: Array) -> list[set[int]]:
    """Return for each item the partitions with a query that matches it, according to the reference evaluator."""
    queries = [PlanQuery(definition) for definition in world.definitions]
    division = dict(zip(logical.query_ids.tolist(), partitions.tolist(), strict=True))
    matches = ScanMatcher(queries, world.definitions).match(world.batch)
    return [{division[value] for value in matches.row(row).tolist()} for row in range(len(matches))]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(all_worlds, st.data(), st.one_of(st.none(), st.integers(0, 12)))
def test_items_go_to_every_partition_with_a_matching_query(
    world: GeneratedWorld, data: st.DataObject, most: int | None
) -> None:
    plan = laid_out(world.definitions)
    count = data.draw(st.integers(1, 3))
    partitions = data.draw(divisions(len(plan.logical.query_ids), count))
    router = router_of(plan, partitions, count, most)
    assert router.query_ids.tolist() == list(range(1, count + 1))
    asked, routed = wanted(world, plan.logical, partitions), routed_to(router, world)
    for values, others in zip(asked, routed, strict=True):
        assert values <= others
    if most is None and np.all(plan.logical.predicate_formulas == EXACT):
        assert asked == routed  # a router without mergers sends no item unnecessarily


def members(router: LogicalPlan) -> list[tuple[int, list[int], list[int]]]:
    """Return the targets of a router: the literals of all clauses, the sources, and the partitions."""
    return sorted(
        (
            int(router.clauses.lengths[router.predicates.row(int(predicate))].sum()),
            router.scopes.row(int(scope)).tolist(),
            partitions,
        )
        for predicate, scope, partitions in zip(
            router.target_predicates, router.target_scopes, router.targets.lists(), strict=True
        )
    )


def test_conditions_of_one_clause_are_united() -> None:
    plan = laid_out(asking(*(word(f"word{number}") for number in range(40)), And((ROCK, JAZZ))))
    partitions = np.arange(41) % 2
    router = router_of(plan, partitions, 2)
    assert members(router) == [(2, [1], [0]), (20, [1], [0]), (20, [1], [1])]
    assert len(router.predicates) == 3


def test_united_clauses_have_a_maximum_length() -> None:
    plan = laid_out(asking(*(word(f"word{number}") for number in range(2500))))
    router = router_of(plan, np.zeros(2500, dtype=np.int64), 1)
    assert sorted(router.clauses.lengths.tolist()) == [452, 1024, 1024]
    assert members(router) == [(452, [1], [0]), (1024, [1], [0]), (1024, [1], [0])]
    world = GeneratedWorld({}, tuple(Item("One", str(n), {"title": (f"word{n}",)}) for n in (0, 1100, 2499, 2500)))
    assert routed_to(router, world) == [{0}, {0}, {0}, set()]


def test_ranges_and_exclusions_are_not_united() -> None:
    plan = laid_out(asking(ROCK, JAZZ, Compare(PRICE, ">", 1.0), Not(LIVE)))
    assert [size for size, _, _ in members(router_of(plan, np.zeros(4, dtype=np.int64), 1))] == [1, 1, 2]


def test_root_covers_other_queries_only_in_its_own_partition() -> None:
    plan = laid_out(asking(ROCK, And((ROCK, JAZZ)), And((ROCK, LIVE))))
    assert members(router_of(plan, np.array([0, 0, 1]), 2)) == [(1, [1], [0]), (2, [1], [1])]
    # If the limit of conditions is reached, the root covers them in all partitions.
    assert members(router_of(plan, np.array([0, 0, 1]), 2, most=1)) == [(1, [1], [0, 1])]


def test_redundant_routes_are_dropped() -> None:
    both = Union((Read(1), Read(2)))
    asked: dict[int, Node] = {
        10: Filter(Read(1), And((ROCK, JAZZ))),
        11: Filter(both, And((ROCK, JAZZ))),
        12: Filter(Read(3), LIVE),
        13: Read(3),
        14: Filter(Read(3), LIVE),
    }
    router = router_of(laid_out(asked), np.array([0, 0, 0, 0, 1]), 3)
    assert members(router) == [(0, [3], [0]), (1, [3], [1]), (2, [1, 2], [0])]
    assert router.query_ids.tolist() == [1, 2, 3]


def test_containing_scopes_are_found() -> None:
    scopes = Rows.of([range(100_000), [0], [1, 2], [1], [2, 1], [100_000], []], np.int64)
    results = list(_wider_scopes(scopes).lists())
    assert results == [[0], [0, 1], [0, 2], [0, 2, 3, 4], [0, 2, 4], [5], list(range(7))]


@pytest.mark.parametrize("wide", [1, 2])
def test_many_scopes_of_many_sources_take_little_memory(wide: int) -> None:
    scopes = Rows.of([*[range(20_000)] * wide, *([number] for number in range(998))], np.int64)
    tracemalloc.start()
    results = _wider_scopes(scopes)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 20_000_000
    # The table of shared sources would be too large, so each scope contains only itself.
    assert [len(row) for row in results.lists()] == [1] + [2] * 998 if wide == 1 else [1] * 1_000


def test_equal_scopes_keep_their_routes() -> None:
    plan = laid_out({10: Filter(Read(1), And((ROCK, JAZZ)))})
    logical = plan.logical
    scopes = type(logical.scopes).of([[1], [1]], np.int64)
    twice = LogicalPlan(
        **{
            **logical.__dict__,
            "scopes": scopes,
            "target_predicates": np.zeros(2, dtype=np.int32),
            "target_scopes": np.array([0, 1], dtype=np.int32),
            "targets": type(scopes).of([[0], [0]]),
        }
    )
    router = router_of(LaidOutPlan(twice, plan.atoms, plan.anchors), np.array([0]), 1)
    assert members(router) == [(2, [1], [0])]


@pytest.mark.parametrize("partitions", [[0], [0, 2], [0, -1], [0, 1, 1]])
def test_every_query_needs_a_partition(partitions: list[int]) -> None:
    plan = laid_out(asking(ROCK, JAZZ))
    with pytest.raises(ValueError, match="from 0 to 1"):
        router_of(plan, np.array(partitions), 2)


def test_router_of_an_empty_plan_has_all_partitions() -> None:
    router = router_of(laid_out({}), np.empty(0, dtype=np.int64), 2)
    assert router.query_ids.tolist() == [1, 2]
    assert len(router.targets) == 0


def test_all_items_of_a_scope_take_an_open_route() -> None:
    other = Filter(Read(2), LIVE)
    plan = laid_out({**asking(ROCK, JAZZ, And((LIVE, Not(ROCK)))), 90: other})
    partitions = np.array([0, 0, 1, 0])
    scope = next(number for number, sources in enumerate(plan.logical.scopes.lists()) if sources == [1])
    router = router_of(plan, partitions, 2, opened=(np.array([0]), np.array([scope])))
    assert (0, [1], [0]) in members(router)
    assert len(members(router)) == 3, "the other conditions of partition 0 for that source are dropped"
    items = (("One", "nothing"), ("One", "live"), ("Two", "nothing"), ("Two", "live"))
    world = GeneratedWorld({}, tuple(Item(feed, title, {"title": (title,)}) for feed, title in items))
    assert routed_to(router, world) == [{0}, {0, 1}, set(), {0}]
