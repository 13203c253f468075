"""The filter tree around a query: the tree of the whole table, looked at from one predicate."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.optimizer.generated_worlds import NAMES, SOURCES, GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.compile.expected_work import expect_streams, part_anchors
from runnel.matching.explain.explain_query import PlanExplanation, explain_query, part_of
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.optimizer.matcher_costs import ExpectedWork
from runnel.papers.roses import explain_tree
from runnel.papers.roses.explain_tree import explained_tree, pictures
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
    compile_base(STORAGE, folder, [PlanQuery(one) for one in definitions], definitions)
    return load(STORAGE, PlanVersion(1, folder))


def explain(plan: Plan, query: int) -> PlanExplanation:
    part, _ = part_of(plan, query)
    return explain_query(query, plan, NAMES, anchors=part_anchors(part).clauses)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(worlds())
def test_the_tree_is_that_of_the_whole_table(world: GeneratedWorld) -> None:
    part = base_plan(world.definitions).base
    table = FilterTable.of(part.logical, part.layout["atom_shares"])
    for source in SOURCES:
        predicates = predicates_of(part.logical, source)
        whole, found = table.tree(predicates), explained_tree(part, source)
        assert found is not None
        assert found.tree.cost == pytest.approx(whole.cost)
        assert len(found.tree) == len(whole)
        for predicate in predicates.tolist():
            told = found.path(predicate)
            assert told.cost == found.tree.cost
            assert len(told.filters) + told.hidden == len(whole) - 1
            above = [ROOT, *(line.node for line in told.filters)]
            assert [line.parent for line in told.filters] == above[:-1]
            if told.filters:
                assert predicate in told.filters[-1].predicates
                assert [line.depth for line in told.filters] == list(range(1, len(told.filters) + 1))
            else:
                assert predicate in predicates[found.tree.predicates.row(ROOT)]


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
    (branch,) = explain(plan, 11).branches
    assert branch.anchor == "title contains 'rock'"
    (found,) = branch.trees
    assert (found.sources, found.predicates) == (("One",), 3)
    assert found.tree is not None
    assert [line.condition for line in found.tree.filters] == ["title contains 'rock'", "price < 3"]
    assert found.tree.unfactored_cost == 3
    assert 0 < found.tree.savings < 1
    assert found.work is not None
    assert (found.work.filters, found.work.queries) == (found.tree.cost, 3)
    told = "\n".join(explain(plan, 11).lines())
    assert "filter tree of One, 3 predicates:" in told
    assert "filters asked per item instead of 3" in told
    assert "matched by streams" in told


def test_queries_that_are_gone_are_not_counted() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), ROCK), 11: Filter(Read(1), LIVE)}
    base = base_plan(definitions).version.base
    compile_delta(STORAGE, "gone", [PlanQuery(12)], {12: Filter(Read(1), ROCK)}, {11}, base)
    plan = load(STORAGE, PlanVersion(2, base, "gone"))
    (kept,) = explain(plan, 10).branches[0].trees
    (added,) = explain(plan, 12).branches[0].trees
    assert kept.work is not None
    assert added.work is not None
    assert (kept.work.queries, added.work.queries) == (1, 1)


def test_sources_of_which_the_same_is_asked_share_a_tree_and_many_are_counted() -> None:
    every = tuple(range(1, 21))
    plan = base_plan(
        {30: Filter(Union(tuple(Read(one) for one in every)), ROCK), 31: Filter(Read(2), LIVE), 32: Read(1)}
    )
    (branch,) = explain(plan, 30).branches
    assert [one.sources for one in branch.trees] == [("One",), ("Two",), ("Three", "#4", "#5", "#6", "#7", "#8")]
    told = explain(plan, 30).lines()
    assert "    filter trees of 12 more sources are not shown" in told
    assert len(pictures(plan, 30, NAMES)) == 3
    everything = "\n".join(explain(plan, 32).lines())
    assert "no filter for this query: every item passes" in everything


def test_too_many_predicates_are_counted_and_not_factored(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = base_plan({10: Filter(Read(1), ROCK), 11: Filter(Read(1), LIVE), 12: Filter(Read(2), LIVE)})
    monkeypatch.setattr(explain_tree, "MOST_PREDICATES", 1)
    explained = explain(plan, 10)
    (found,) = explained.branches[0].trees
    assert found.tree is None
    assert found.work is not None
    assert found.work.filters is None
    told = "\n".join(explained.lines())
    assert "One: 2 predicates; the filter tree is shown for 1 at most" in told
    assert "found by: title contains 'rock'" in told
    assert "tree:" not in told
    assert pictures(plan, 10, NAMES) == {}
    assert list(pictures(plan, 12, NAMES)) == ["Two"]


def test_what_no_key_leads_to_is_an_entry_for_every_item() -> None:
    ranges = {10 + n: Filter(Read(1), Compare(Attribute("price"), ">", float(n))) for n in range(5)}
    part = base_plan(ranges).base
    assert np.all(part_anchors(part).clauses < 0)
    work = expect_streams(StreamLayout.stored(part.layout), stored_atoms(part))
    # Five entries are walked for a block of 256 items, and each compares the number of every item.
    assert work.entries.tolist() == [5 / 256]
    assert work.numbers.tolist() == [5.0]


def test_the_cheapest_matcher_is_named_and_what_runs_is_not_hidden() -> None:
    few = ExpectedWork(3.0, 2.0, 4)
    assert few.cheapest == "streams"
    ranges = ExpectedWork(400.0, 2_000.0, 100_000, numbers=100_000.0, candidates=100_000.0)
    assert ranges.cheapest == "tree"
    assert ranges.lines()[0].startswith("matched by streams, which are laid out for it;")
    assert "its filter tree would be expected to cost less" in ranges.lines()[0]
    assert ranges.to_json()["used"] == "streams"
    assert replace(ranges, used="tree").lines()[0].endswith("which is expected to cost least for an item:")
    assert replace(ranges, forced=True).lines()[0] == "matched by streams, as the settings say:"
    assert "tree" not in ExpectedWork(3.0, None, 4).microseconds
