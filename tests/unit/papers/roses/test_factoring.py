"""Factorisation keeps what is matched, and its cost is what the model says, near the best there is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.factoring import conjunctions, normal_forms
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.papers.roses.generated_filters import (
    GeneratedFilters,
    cheapest_cost,
    generated_filters,
    random_filters,
)

from runnel.arrays import Rows
from runnel.papers.roses.cost_model import benefit, join_cost, tree_cost, union_cost, window_cost
from runnel.papers.roses.factoring import candidates
from runnel.papers.roses.factoring.candidates import FactoringSettings, find_candidates
from runnel.papers.roses.factoring.factor_filters import FactoringProblem, factor_filters
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree, accepted
from runnel.papers.roses.factoring.filters import Filters, set_rates
from runnel.papers.roses.sta import factor_by_sta
from runnel.papers.roses.subsumption_graph import build_graph
from runnel.papers.roses.vca import factor_by_vca

CASES = settings(max_examples=100, deadline=None, derandomize=True)

ALGORITHMS: dict[str, Callable[[Filters], FilterTree]] = {
    "VCA with VCB": lambda filters: factor_filters(filters, refined=False),
    "VCA with VCB, refined": factor_filters,
    "VCA with VCB, few candidates": lambda filters: factor_filters(filters, FactoringSettings(subsets=15, entries=9)),
    "VCA with graph": lambda filters: factor_by_vca(build_graph(filters)),
    "STA": lambda filters: factor_by_sta(build_graph(filters)),
    "STA, two levels": lambda filters: factor_by_sta(build_graph(filters), levels=2),
}


@pytest.mark.parametrize("name", ALGORITHMS)
@CASES
@given(generated_filters())
def test_a_tree_accepts_what_each_predicate_by_itself_accepts(name: str, case: GeneratedFilters) -> None:
    tree = ALGORITHMS[name](case.filters)
    for item, truths in enumerate(case.truths):
        assert accepted(tree, truths) == case.expected(item)
    check_shape(tree, case.filters)


def check_shape(tree: FilterTree, filters: Filters) -> None:
    """The tree is a tree, decides each predicate once, and costs what its edges cost and no more than no tree."""
    assert tree.parents[ROOT] == -1
    assert all(0 <= parent < node for node, parent in enumerate(tree.parents.tolist()) if node)
    decided = sorted(tree.predicates.values.tolist())
    assert decided == list(range(len(filters.predicates)))
    assert tree.cost == pytest.approx(sum(tree.selectivities[parent] for parent in tree.parents[1:].tolist()))
    assert tree.cost <= tree.unfactored_cost + 1e-9
    assert (np.diff(tree.selectivities[np.stack([tree.parents[1:], np.arange(1, len(tree))])], axis=0) <= 1e-12).all()
    inserted = set(np.flatnonzero(tree.predicates.lengths == 0).tolist()) - {ROOT}
    assert inserted <= set(tree.parents.tolist())  # a filter that nothing follows would be asked for nothing


@CASES
@given(generated_filters(most=6))
def test_the_sorted_pass_is_the_printed_algorithm(case: GeneratedFilters) -> None:
    printed = factor_by_vca(build_graph(case.filters))
    passed = factor_filters(case.filters, refined=False)
    assert passed.cost == pytest.approx(printed.cost)
    assert len(passed) == len(printed)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(generated_filters(most=6))
def test_no_algorithm_beats_the_best_tree(case: GeneratedFilters) -> None:
    graph = build_graph(case.filters)
    assume(len(graph.rates) - len(graph.problem.predicates) <= 10)
    best = cheapest_cost(graph)
    costs = {name: factor(case.filters).cost for name, factor in ALGORITHMS.items()}
    assert min(costs.values()) >= best - 1e-9
    assert costs["VCA with VCB, refined"] <= costs["VCA with VCB"] + 1e-9


def test_trees_are_close_to_the_best() -> None:
    ratios: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
    for seed in range(60):
        filters = random_filters(seed, predicates=8, clauses=6)
        graph = build_graph(filters)
        if len(graph.rates) - len(graph.problem.predicates) > 12:
            continue
        best = cheapest_cost(graph)
        for name, factor in ALGORITHMS.items():
            ratios[name].append(factor(filters).cost / best)
    means = {name: float(np.mean(ratio)) for name, ratio in ratios.items()}
    assert len(ratios["STA"]) > 30
    assert means["VCA with VCB, refined"] < 1.01
    assert max(ratios["VCA with VCB, refined"]) < 1.15
    assert means["STA"] < 1.1
    assert means["VCA with VCB"] < 1.25


def test_on_larger_inputs_the_refined_tree_is_no_worse_than_the_papers() -> None:
    for seed in range(3):
        filters = random_filters(seed, predicates=120, clauses=40)
        graph = build_graph(filters)
        refined = factor_filters(filters).cost
        assert refined <= factor_by_vca(graph).cost + 1e-9
        assert refined <= factor_by_sta(graph, levels=2).cost + 1e-9
        assert refined <= 1.01 * factor_by_sta(graph).cost


def test_the_example_of_figure_five() -> None:
    # a, b, c, d; the predicates a and b, a and c, a and c and d.
    filters = Filters.of(Rows.of([[0, 1], [0, 2], [0, 2, 3]]), np.array([0.2, 0.3, 0.3, 0.3]))
    tree = factor_filters(filters, refined=False)
    assert list(tree.clauses.lists()) == [[], [0], [1], [2], [3]]
    assert tree.parents.tolist() == [-1, 0, 1, 1, 3]
    assert tree.cost == pytest.approx(1 + 0.2 + 0.2 + 0.06)
    assert (tree.unfactored_cost, round(tree.savings, 4)) == (3.0, round(1 - 1.46 / 3, 4))


def test_the_example_of_figure_six() -> None:
    # abc, bcd, ae, ef: first b and c is factored out, then e; a stays with one predicate only.
    a, b, c, d, e, f = range(6)
    predicates = Rows.of([[a, b, c], [b, c, d], [a, e], [e, f]])
    tree = factor_filters(Filters.of(predicates, np.array([0.3, 0.1, 0.2, 0.5, 0.4, 0.5])), refined=False)
    inserted = [sorted(tree.clauses.row(node).tolist()) for node in range(1, 5) if not len(tree.predicates.row(node))]
    assert sorted(inserted) == [[b, c], [e]]


def test_a_reduced_filter_is_removed() -> None:
    # ab and abc are almost as common as a alone: the filter ab is worth nothing once a stands above it.
    predicates = Rows.of([[0, 1, 2], [0, 1, 3], [0, 4], [0, 5]])
    filters = Filters.of(predicates, np.array([0.4, 0.9, 0.1, 0.1, 0.1, 0.1]))
    tree = factor_filters(filters, refined=False)
    assert [tree.clauses.row(node).tolist() for node in range(len(tree)) if not len(tree.predicates.row(node))] == [
        [],
        [0],
    ]


def test_wider_clauses_become_shared_filters() -> None:
    # price > 20 and price > 30 both need price > 10, which nobody asks alone but one predicate.
    wider = Rows.of([[], [0], [1, 0], []])
    filters = Filters.of(Rows.of([[0], [1], [2], [2, 3]]), np.array([0.3, 0.2, 0.1, 0.5]), wider)
    tree = factor_filters(filters)
    assert tree.parents.tolist() == [-1, 0, 1, 2, 3]
    assert tree.cost == pytest.approx(1 + 0.3 + 0.2 + 0.1)


def test_a_wrong_estimate_is_raised_to_what_implication_demands() -> None:
    filters = Filters.of(Rows.of([[0], [1]]), np.array([0.1, 0.4]), Rows.of([[], [0]]))
    assert filters.selectivities.tolist() == [0.4, 0.4]


def test_equal_predicates_share_a_node_and_empty_ones_the_source() -> None:
    filters = Filters.of(Rows.of([[0, 1], [], [1, 0, 1], []]), np.array([0.5, 0.5]))
    tree = factor_filters(filters)
    assert list(tree.predicates.lists()) == [[1, 3], [0, 2]]
    assert tree.unfactored_cost == 1.0


def test_nothing_gives_a_tree_of_the_source() -> None:
    tree = factor_filters(Filters.of(Rows.of([]), np.empty(0)))
    assert (len(tree), tree.cost, tree.savings) == (1, 0.0, 0.0)


def test_sets_whose_keys_meet_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_hash_clauses", lambda count: np.ones(count, dtype=np.uint64))
    filters = random_filters(1, predicates=40, clauses=8)
    tree = factor_filters(filters)
    dice = np.random.default_rng(2)
    for _ in range(30):
        truths = dice.random(8) < 0.5
        wanted = {number for number, row in enumerate(filters.predicates.lists()) if truths[row].all()}
        assert accepted(tree, truths) == wanted


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 1000))
def test_long_predicates_and_many_wider_clauses_stay_within_bounds(seed: int) -> None:
    dice = np.random.default_rng(seed)
    wider = Rows.of([list(range(max(0, value - 16), value)) if value < 90 else [] for value in range(120)])
    rows = [sorted(dice.choice(120, dice.integers(1, 40), replace=False).tolist()) for _ in range(30)]
    filters = Filters.of(Rows.of(rows), np.linspace(0.9, 0.1, 120), wider)
    results = find_candidates(FactoringProblem.of(filters).predicates, filters)
    assert results.elements.rows.lengths.max() <= 62
    tree = factor_filters(filters)
    check_shape(tree, filters)
    for _ in range(5):
        held = int(dice.integers(0, 91))  # in the chain of ninety clauses one implies all before it
        truths = np.concatenate([np.arange(90) < held, dice.random(30) < 0.9])
        assert accepted(tree, truths) == {number for number, row in enumerate(rows) if truths[row].all()}


def test_a_sample_shows_what_depends_on_what() -> None:
    # Clauses 0 and 1 hold together or not at all; as independent ones they look four times as selective.
    sample = np.zeros((100, 3), dtype=bool)
    sample[:25, :2] = True
    sample[::2, 2] = True
    filters = Filters.of(Rows.of([[0, 1, 2]]), np.array([0.25, 0.25, 0.5]), sample=sample)
    assert set_rates(filters.predicates, filters).tolist() == [0.13]
    guessed = Filters.of(filters.predicates, filters.selectivities)
    assert set_rates(guessed.predicates, guessed).tolist() == [0.03125]
    both = Rows.of([[0, 1], [0, 1, 2], [1, 2]])
    tree = factor_filters(Filters.of(both, filters.selectivities, sample=sample))
    assert tree.selectivities.min() == pytest.approx(0.13)


def test_the_papers_workload_costs_three_percent() -> None:
    dice = np.random.default_rng(5)
    rates = 0.2 / np.arange(1, 201) ** 0.8
    results: dict[tuple[int, ...], None] = {}
    while len(results) < 10_000:
        row = dice.choice(200, dice.integers(1, 4), replace=False, p=rates / rates.sum())
        results.setdefault(tuple(sorted(row.tolist())))
    tree = factor_filters(Filters.of(Rows.of(results), rates))
    assert tree.unfactored_cost == 10_000
    assert tree.cost < 0.03 * tree.unfactored_cost


def test_a_tree_can_be_stored() -> None:
    tree = factor_filters(random_filters(3, predicates=20, clauses=6))
    again = FilterTree.stored(tree.arrays("tree"), "tree")
    assert again.cost == tree.cost
    assert again.depths.tolist() == tree.depths.tolist()
    truths = np.arange(6) % 2 == 0
    assert accepted(again, truths) == accepted(tree, truths)


def test_depths_count_filters_from_the_source() -> None:
    tree = factor_filters(Filters.of(Rows.of([[0], [0, 1], [0, 1, 2]]), np.array([0.5, 0.5, 0.5])))
    assert tree.depths.tolist() == [0, 1, 2, 3]


def test_the_cost_model_of_table_one() -> None:
    tree = factor_filters(Filters.of(Rows.of([[0, 1], [0, 2]]), np.array([0.1, 0.5, 0.5])))
    cost = tree_cost(tree, rate=1000.0)
    assert cost.processing == pytest.approx(1000.0 * tree.cost)
    assert cost.rate == pytest.approx(100.0)
    assert union_cost([3.0, 4.0]).rate == 7.0
    assert join_cost(10.0, 0.5, 30.0).processing == 300.0
    assert window_cost(2.0, items=50.0).memory == 50.0
    assert benefit(2, 1.0, 0.4, inserted=False) > benefit(2, 1.0, 0.4)


def test_the_sorted_pass_gives_the_tree_of_the_graph_for_conjunctions_and_nearly_for_disjunctions() -> None:
    for seed in range(3):
        plain = conjunctions(150, seed)
        assert factor_filters(plain, refined=False).cost == pytest.approx(factor_by_vca(build_graph(plain)).cost)
    costs = []
    for seed in range(3):
        mixed = normal_forms(60, 2, seed)
        costs.append((factor_filters(mixed, refined=False).cost, factor_by_vca(build_graph(mixed)).cost))
    assert all(results == pytest.approx(graph, rel=0.05) for results, graph in costs)
    assert any(results != pytest.approx(graph, rel=1e-6) for results, graph in costs), (
        "the page says that they may differ"
    )
