"""`explain` where the tree matcher is what runs: the tree of the whole table, looked at from one predicate."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.unit.optimizer.generated_worlds import NAMES, SOURCES, GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.explain.explain_query import draw_query, explain_query
from runnel.papers.roses import explain_tree
from runnel.papers.roses.explain_tree import TreeExplanation, build_explained_tree
from runnel.papers.roses.factoring.filter_table import FilterTable, predicates_of
from runnel.papers.roses.factoring.filter_tree import ROOT
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-explain-")
STORAGE = FileStorage(Path(_root.name).as_uri())

ROCK: Expression = Contains(Attribute("title"), ("rock",))
LIVE: Expression = Contains(Attribute("title"), ("live",))


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """Plans that live for a moment need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def base_plan(definitions: Mapping[int, Node]) -> Plan:
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, [PlanQuery(definition) for definition in definitions], definitions, matcher="tree")
    return load(STORAGE, PlanVersion(1, folder))


def trees(plan: Plan, query: int) -> list[TreeExplanation]:
    (branch,) = explain_query(query, plan, NAMES).branches
    assert all(isinstance(value, TreeExplanation) for value in branch.matched)
    return [value for value in branch.matched if isinstance(value, TreeExplanation)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(worlds())
def test_the_tree_is_that_of_the_whole_table(world: GeneratedWorld) -> None:
    part = base_plan(world.definitions).base
    table = FilterTable.of(part.logical, part.layout["atom_shares"])
    for source in SOURCES:
        predicates = predicates_of(part.logical, source)
        whole, explained_tree = table.tree(predicates), build_explained_tree(part, source)
        assert explained_tree is not None
        assert explained_tree.tree.cost == pytest.approx(whole.cost)
        assert len(explained_tree.tree) == len(whole)
        for predicate in predicates.tolist():
            path = explained_tree.path(predicate)
            assert path.cost == explained_tree.tree.cost
            assert len(path.filters) + path.hidden == len(whole) - 1
            above = [ROOT, *(line.node for line in path.filters)]
            assert [line.parent for line in path.filters] == above[:-1]
            if path.filters:
                assert predicate in path.filters[-1].predicates
                assert [line.depth for line in path.filters] == list(range(1, len(path.filters) + 1))
            else:
                assert predicate in predicates[explained_tree.tree.predicates.row(ROOT)]


def test_a_query_below_another_shows_the_way_down() -> None:
    cheap = Compare(Attribute("price"), "<", 3.0)
    plan = base_plan(
        {
            10: Filter(Read(1), ROCK),
            11: Filter(Read(1), And((ROCK, cheap))),
            12: Filter(Read(1), And((ROCK, LIVE))),
            13: Filter(Read(2), LIVE),
        }
    )
    (tree,) = trees(plan, 11)
    assert (tree.sources, tree.predicates) == (("One",), 3)
    assert tree.tree is not None
    assert [line.condition for line in tree.tree.filters] == ["title contains 'rock'", "price < 3"]
    assert tree.tree.unfactored_cost == 3
    assert 0 < tree.tree.savings < 1
    text = "\n".join(explain_query(11, plan, NAMES).lines())
    assert "matched by the filter tree of One, 3 predicates:" in text
    assert "filters evaluated per item instead of 3" in text
    assert "stream" not in text, "nothing is shown that does not run"
    assert tree.to_json()["matcher"] == "tree"


def test_a_delta_has_a_tree_of_its_own() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), ROCK), 11: Filter(Read(1), LIVE)}
    base = base_plan(definitions).version.base
    compile_delta(STORAGE, "gone", [PlanQuery(12)], {12: Filter(Read(1), ROCK)}, {11}, base)
    plan = load(STORAGE, PlanVersion(2, base, "gone"))
    assert [entry.predicates for entry in (*trees(plan, 10), *trees(plan, 12))] == [2, 1]


def test_sources_of_which_the_same_is_asked_share_a_tree_and_many_are_counted() -> None:
    every = tuple(range(1, 21))
    plan = base_plan(
        {30: Filter(Union(tuple(Read(value) for value in every)), ROCK), 31: Filter(Read(2), LIVE), 32: Read(1)}
    )
    assert [tree.sources for tree in trees(plan, 30)] == [("One",), ("Two",), ("Three", "#4", "#5", "#6", "#7", "#8")]
    lines = explain_query(30, plan, NAMES).lines()
    assert "    filter trees of 12 more sources are not shown" in lines
    assert len(draw_query(30, plan, NAMES)) == 3
    everything = "\n".join(explain_query(32, plan, NAMES).lines())
    assert "no filter for this query: every item passes" in everything


def test_too_many_predicates_are_counted_and_not_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = base_plan({10: Filter(Read(1), ROCK), 11: Filter(Read(1), LIVE), 12: Filter(Read(2), LIVE)})
    monkeypatch.setattr(explain_tree, "MAX_PREDICATES", 1)
    (tree,) = trees(plan, 10)
    assert tree.tree is None
    text = " ".join(" ".join(explain_query(10, plan, NAMES).lines()).split())
    assert "matched by the filter tree of One, 2 predicates; it is shown for 1 at most" in text
    assert draw_query(10, plan, NAMES) == {}
    assert list(draw_query(12, plan, NAMES)) == ["Two"]
