"""The choice of an order, and the workloads, simulations and lower bounds of the benchmark."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from benchmarks.operator_bounds import lower_bound
from benchmarks.operator_workloads import Workload, expected_matches, make_problem
from benchmarks.operators_plots import PAPER, lines_of
from hypothesis import given, settings
from tests.unit.matching.operators.orders.order_cases import ORDERS, Case, cases

from runnel.matching.operators.orders.choose_order import choose_order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.registry import CANDIDATES, installed_orders
from runnel.matching.operators.orders.simulate import Simulation, draw_truths
from runnel.papers.operators.sweep import pack_truths, sweep


@given(case=cases(failing=False))
@settings(deadline=None, max_examples=50)
def test_the_lower_bound_does_not_exceed_the_cost_of_any_order(case: Case) -> None:
    problem = case.problem
    truth = np.array((case.truths or [[True] * problem.tests])[0])
    best = _best(case, truth)
    bound = lower_bound(problem, truth)
    slack = 1e-6 * (1.0 + sum(case.costs))
    assert bound.value <= best + slack
    for make in ORDERS.values():
        followed = Simulation(problem, make(problem)).follow(truth[None, :])
        assert followed.costs[0] >= best - slack


def _best(case: Case, truth: np.ndarray) -> float:
    """Return the lowest cost of calls that decide every disjunct."""
    calls = range(len(case.costs))
    return min(
        sum(case.costs[call] for call in chosen)
        for size in range(len(case.costs) + 1)
        for chosen in combinations(calls, size)
        if all(_is_shown(case, disjunct, truth, set(chosen)) for disjunct in case.disjuncts)
    )


def _is_shown(case: Case, disjunct: list[int], truth: np.ndarray, chosen: set[int]) -> bool:
    if all(truth[test] for test in disjunct):
        return all(case.test_calls[test] in chosen for test in disjunct)
    return any(not truth[test] and case.test_calls[test] in chosen for test in disjunct)


def test_the_lower_bound_is_close_to_that_of_the_relaxation() -> None:
    problem = make_problem(Workload(ways=2_000, calls=1_000))
    bound = lower_bound(problem, draw_truths(problem, 1, 3)[0])
    assert 0 < bound.packing <= bound.cover
    assert bound.gap < 0.02


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_workloads_have_the_requested_lengths_and_match_rates(exponent: float) -> None:
    problem = make_problem(Workload(ways=3_000, calls=900, exponent=exponent, longest=7))
    lengths = np.diff(problem.disjunct_offsets)
    assert (lengths.min(), lengths.max()) == (3, 7)
    assert all(
        len(set(problem.tests_of_disjunct(disjunct).tolist())) == lengths[disjunct]
        for disjunct in range(problem.disjuncts)
    )
    assert expected_matches(problem) == pytest.approx(0.002, rel=1e-3)
    shared = np.sort(np.diff(problem.test_offsets))[::-1]
    assert (shared[0] > 0.1 * problem.disjuncts) == (exponent > 0)


def test_costs_have_a_mean_of_one() -> None:
    problem = make_problem(Workload(ways=300, calls=200, spread=1.5))
    assert problem.costs.mean() == pytest.approx(1.0)
    assert problem.costs.max() > 3 * problem.costs.min()


def test_simulating_64_items_together_counts_the_same_calls() -> None:
    dice = np.random.default_rng(2)
    disjuncts = [sorted(set(dice.integers(0, 40, 4).tolist())) for _ in range(120)]
    problem = OrderProblem.of(disjuncts, np.arange(40) // 2, dice.random(40), np.ones(20))
    truths = draw_truths(problem, 70, 9)
    order = ORDERS["static_greedy"](problem)
    followed = Simulation(problem, order).follow(truths)
    calls, accepted = sweep(problem, order, pack_truths(truths), 70)
    assert calls.tolist() == followed.calls.tolist()
    assert accepted.tolist() == followed.accepted.tolist()
    with pytest.raises(ValueError, match="adaptive is not a static order of calls"):
        sweep(problem, ORDERS["adaptive"](problem), pack_truths(truths), 70)


def test_the_choice_has_the_lowest_cost_and_is_deterministic() -> None:
    problem = make_problem(Workload(ways=400, calls=200, exponent=1.0))
    choice, again = choose_order(problem), choose_order(problem)
    assert [prediction.order for prediction in choice.predictions] == [
        prediction.order for prediction in again.predictions
    ]
    assert {prediction.order for prediction in choice.predictions} == set(CANDIDATES)
    assert choice.order.name == choice.predictions[0].order
    seconds = [prediction.seconds for prediction in choice.predictions]
    assert seconds == sorted(seconds)
    assert choice.order.name == "adaptive"
    every = choose_order(problem, candidates=tuple(installed_orders()))
    assert every.order.name == "adaptive_weighted", "an installed order can be tried, too"
    saved = {prediction.order: prediction.seconds for prediction in every.predictions}
    assert saved["adaptive"] < 1.05 * saved["adaptive_weighted"]


def test_with_cheap_calls_the_bookkeeping_decides() -> None:
    expensive = make_problem(Workload(ways=400, calls=200))
    disjuncts = [expensive.tests_of_disjunct(disjunct).tolist() for disjunct in range(expensive.disjuncts)]
    cheap = OrderProblem.of(disjuncts, expensive.test_calls, expensive.chances, np.full(200, 1e-9))
    assert choose_order(expensive).order.name == "adaptive"
    assert choose_order(cheap).order.name == "static_greedy"


def test_the_weighted_order_is_chosen_only_if_calls_are_expensive() -> None:
    expensive = make_problem(Workload(ways=400, calls=200, exponent=1.0))
    disjuncts = [expensive.tests_of_disjunct(disjunct).tolist() for disjunct in range(expensive.disjuncts)]
    cheap = OrderProblem.of(disjuncts, expensive.test_calls, expensive.chances, np.full(200, 20e-6))
    names = ("sequential", "adaptive", "adaptive_weighted")
    choices = [choose_order(problem, candidates=names) for problem in (expensive, cheap)]
    by_name = [{prediction.order: prediction for prediction in choice.predictions} for choice in choices]
    for document in by_name:
        assert document["adaptive_weighted"].calls < document["adaptive"].calls < document["sequential"].calls
        assert document["adaptive_weighted"].bookkeeping > document["adaptive"].bookkeeping
    assert [document["adaptive_weighted"].seconds < document["adaptive"].seconds for document in by_name] == [
        True,
        False,
    ]


def test_the_choice_depends_on_the_active_disjuncts() -> None:
    problem = make_problem(Workload(ways=400, calls=200))
    few = choose_order(problem, np.array([0, 2, 3]), np.array([5, 9, 7]))
    assert max(prediction.calls for prediction in few.predictions) <= 10
    assert min(prediction.calls for prediction in choose_order(problem).predictions) > 20


def test_plots_are_drawn_from_recorded_figures() -> None:
    line = {
        "benchmark": "operators",
        "figure": "figure4",
        "order": "adaptive_weighted",
        "disjuncts": 2_000,
        "calls": 5.0,
    }
    assert lines_of([line, line | {"disjuncts": 10, "calls": 1.0}], "figure4", "disjuncts") == {
        "adaptive_weighted": ([10, 2_000], [1, 5])
    }
    bounded = lines_of([line | {"to_bound": 1.25}], "figure4", "disjuncts")
    assert bounded == {"adaptive_weighted": ([2_000], [5.0]), "bound": ([2_000], [4.0])}
    assert set(PAPER) <= {"figure4", "figure6", "figure7"}
