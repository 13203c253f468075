"""Filter trees in words, as JSON and as a picture."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from lxml import etree
from tests.unit.papers.roses.generated_filters import random_filters

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Or
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import Rows
from runnel.optimizer.optimize import optimize
from runnel.papers.roses.describe_tree import clause_texts, describe_tree, subtree_costs
from runnel.papers.roses.draw_tree import draw_tree
from runnel.papers.roses.factoring.factor_filters import factor_filters
from runnel.papers.roses.factoring.filter_table import FilterTable, predicates_of
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree
from runnel.papers.roses.factoring.filters import Filters
from runnel.plan.logical_plan import PlanQuery


def name(clause: int) -> str:
    return f"title contains 'word{clause}'"


def test_a_plan_is_told_in_the_words_of_the_language() -> None:
    title = Attribute("title")
    rock, pop = Contains(title, ("rock",)), Contains(title, ("pop",))
    cheap, free = Compare(Attribute("price"), "<", 10.0), Compare(Attribute("price"), "=", 0.0)
    definitions: dict[int, Node] = {
        10: Filter(Read(1), And((rock, Or((pop, cheap))))),
        11: Filter(Read(1), And((rock, free))),
    }
    logical = optimize([PlanQuery(10), PlanQuery(11)], definitions)
    tree = FilterTable.of(logical).tree(predicates_of(logical, 1))
    lines = describe_tree(tree, clause_texts(logical)).lines()
    # A free one is a cheap one, so the second predicate is asked only where the first holds.
    assert lines == [
        "1.15 filters evaluated per item instead of 2 (42.4 % saved)",
        "  title contains 'rock' and (title contains 'pop' or price < 10): "
        "evaluated for 100 %, passed by 15 % of the items; decides 1 predicate",
        "    price = 0: evaluated for 15 %, passed by 9 % of the items; decides 1 predicate",
    ]


def test_a_description_is_json_and_counts_what_it_leaves_off() -> None:
    tree = factor_filters(random_filters(1, predicates=300, clauses=40))
    described = describe_tree(tree, name, limit=25)
    again = json.loads(json.dumps(described.to_json()))
    assert len(again["filters"]) == 25
    assert again["left_off"] == len(tree) - 1 - 25
    assert again["cost"] == pytest.approx(tree.cost, abs=1e-5)
    assert again["predicates"] == 300
    shown = {entry["node"] for entry in again["filters"]}
    assert all(entry["parent"] == ROOT or entry["parent"] in shown for entry in again["filters"])
    assert described.lines()[-1] == f"  and {len(tree) - 26} more filters"
    assert replace(described, hidden=1).lines()[-1] == "  and 1 more filter"
    whole = describe_tree(tree, name, limit=10**6)
    assert whole.hidden + len(whole.filters) == len(tree) - 1


def test_the_costs_of_branches_add_up() -> None:
    tree = factor_filters(random_filters(2, predicates=200, clauses=30))
    costs = subtree_costs(tree)
    assert costs[ROOT] == pytest.approx(tree.cost)
    ends = np.setdiff1d(np.arange(1, len(tree)), tree.parents)
    assert costs[ends] == pytest.approx(tree.selectivities[tree.parents[ends]])


def test_a_tree_without_filters_is_told_too() -> None:
    tree = factor_filters(Filters.of(Rows.of([[]]), np.empty(0)))
    assert describe_tree(tree, name).lines() == ["0.00 filters evaluated per item instead of 0 (0.0 % saved)"]
    assert "<svg" in draw_tree(tree, name)


@pytest.mark.parametrize(
    "hostile", ["$\\frac{1}{0$", "<script>&\"'", "a\x00b\x1b[2J\u202e", "x" * 5000, "東京 🎸", ""]
)
def test_a_picture_holds_any_text(hostile: str) -> None:
    tree = FilterTree(np.array([-1, 0]), Rows.of([[], [0]]), Rows.of([[], [4]]), np.array([1.0, 0.5]))
    picture = draw_tree(tree, lambda clause: hostile, title=hostile[:20])
    assert etree.fromstring(picture.encode()).tag.endswith("svg")
    assert "<script>" not in picture
    assert len(picture) < 40_000


def test_a_picture_shows_the_filters_and_the_savings() -> None:
    tree = factor_filters(random_filters(3, predicates=30, clauses=6))
    picture = draw_tree(tree, name, title="News")
    texts = "".join(str(text) for text in etree.fromstring(picture.encode()).itertext())
    assert "News" in texts
    assert "word0" in texts
    assert f"{100 * tree.savings:.1f} % saved" in texts
    assert picture == draw_tree(tree, name, title="News")  # no dates, no random ids
