"""All orders make the same decisions, make each call at most once, and make no unnecessary call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.matching.operators.orders.order_cases import ORDERS, Case, cases, play

from runnel.matching.operators.orders import call_buckets
from runnel.matching.operators.orders.batch_arrays import ACCEPTED, REJECTED, UNDECIDED, UNKNOWN
from runnel.matching.operators.orders.batch_layout import build_batch_layout
from runnel.matching.operators.orders.problem import OrderProblem, everything
from runnel.matching.operators.orders.rounds import Rounds
from runnel.matching.operators.orders.simulate import Simulation, draw_truths
from runnel.papers.operators.advance_disjuncts import INDEPENDENT


def decided(case: Case, name: str, seed: int = 0) -> tuple[Rounds, dict[int, list[int]]]:
    rounds = case.rounds(ORDERS[name](case.problem))
    return rounds, play(case, rounds, seed)


@pytest.mark.parametrize("name", ORDERS)
@given(case=cases(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_outcomes_equal_those_of_evaluating_every_test(name: str, case: Case, seed: int) -> None:
    rounds, asked = decided(case, name, seed)
    for (item, disjunct), outcome in zip(case.pairs(), rounds.outcomes.tolist(), strict=True):
        assert outcome in case.may_be(item, disjunct)
        evaluated = asked[item]
        needed = [case.test_calls[test] for test in case.disjuncts[disjunct]]
        if outcome == ACCEPTED:
            assert set(needed) <= set(evaluated)
        if outcome == REJECTED:
            assert any(
                case.test_calls[test] in evaluated and not case.truths[item][test]
                for test in case.disjuncts[disjunct]
            )
        if outcome == UNKNOWN:
            assert set(needed) & set(evaluated) & case.failing[item]


@pytest.mark.parametrize("name", ORDERS)
@given(case=cases())
@settings(deadline=None, max_examples=40)
def test_a_call_is_made_once_and_only_if_a_disjunct_needs_it(name: str, case: Case) -> None:
    _, asked = decided(case, name)
    for item, calls in asked.items():
        wanted = {case.test_calls[test] for disjunct in case.active[item] for test in case.disjuncts[disjunct]}
        assert len(set(calls)) == len(calls)
        assert set(calls) <= wanted


@pytest.mark.parametrize("name", [name for name in ORDERS if name != "naive"])
@given(case=cases())
@settings(deadline=None, max_examples=60)
def test_every_call_is_needed_by_an_undecided_disjunct(name: str, case: Case) -> None:
    """When a call is made, an undecided disjunct needs it. Items whose disjuncts are decided have no more calls."""
    _, asked = decided(case, name)
    for item, calls in asked.items():
        undecided, seen = [disjunct for disjunct in case.active[item] if case.disjuncts[disjunct]], set()
        for call in calls:
            assert any(case.test_calls[test] == call for disjunct in undecided for test in case.disjuncts[disjunct])
            seen.add(call)
            undecided = [disjunct for disjunct in undecided if not _is_decided(case, item, disjunct, seen)]


def _is_decided(case: Case, item: int, disjunct: int, seen: set[int]) -> bool:
    settled = [test for test in case.disjuncts[disjunct] if case.test_calls[test] in seen]
    ends = any(case.test_calls[test] in case.failing[item] or not case.truths[item][test] for test in settled)
    return ends or len(settled) == len(case.disjuncts[disjunct])


@pytest.mark.parametrize("name", ["adaptive", "adaptive_weighted"])
@given(case=cases(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_buckets_and_scanning_lead_to_the_same_decisions(name: str, case: Case, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_buckets, "FEW", 0)
        rounds, asked = decided(case, name, seed)
    for (item, disjunct), outcome in zip(case.pairs(), rounds.outcomes.tolist(), strict=True):
        assert outcome in case.may_be(item, disjunct)
    for calls in asked.values():
        assert len(set(calls)) == len(calls)


@pytest.mark.parametrize("name", ["adaptive", "adaptive_weighted"])
@given(case=cases(failing=False))
@settings(deadline=None, max_examples=40)
def test_an_adaptive_order_makes_the_call_with_the_highest_score(name: str, case: Case) -> None:
    """Each call has the highest score, computed by definition in plain Python."""
    problem = case.problem
    _, asked = decided(case, name)
    mean = float(np.mean(case.costs))
    prices = [max(cost / mean, 1e-9) if mean > 0 else 1.0 for cost in case.costs]
    for item, calls in asked.items():
        seen: set[int] = set()
        for call in calls:
            scores: dict[int, float] = {}
            for disjunct in case.active[item]:
                left = [test for test in case.disjuncts[disjunct] if case.test_calls[test] not in seen]
                if left and not _is_decided(case, item, disjunct, seen):
                    for test in left:
                        gain = (1 - case.chances[test]) / prices[case.test_calls[test]]
                        key = case.test_calls[test]
                        scores[key] = scores.get(key, 0.0) + (
                            gain / len(left) if name == "adaptive_weighted" else gain
                        )
            assert scores[call] >= max(scores.values()) * (1 - 1e-5) - 1e-6 * problem.disjuncts
            seen.add(call)


def test_the_static_order_considers_the_expected_undecided_disjuncts() -> None:
    # Call 0 is in two disjuncts. Then disjunct 0 is undecided with 0.1; call 2, of a disjunct that is surely
    # undecided, comes next.
    problem = OrderProblem.of([[0, 1], [0], [2]], [0, 1, 2], [0.1, 0.1, 0.5], [1.0, 1.0, 1.0])
    assert np.argsort(ORDERS["static_greedy"](problem).ranks).tolist() == [0, 2, 1]


def test_the_sequential_order_finishes_a_disjunct() -> None:
    # Way 0 is rejected by its first test. Call 1 is asked all the same, for disjunct 1 needs it.
    problem = OrderProblem.of([[0, 1], [2, 1]], [0, 1, 2], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0])
    case = Case([[0, 1], [2, 1]], [0, 1, 2], [0.5] * 3, [1.0] * 3, [[0, 1]], [[False, False, True]], [set()])
    assert play(case, case.rounds(ORDERS["sequential"](problem))) == {0: [0, 1]}
    assert play(case, case.rounds(ORDERS["naive"](problem))) == {0: [0, 2, 1]}
    assert play(case, case.rounds(ORDERS["adaptive"](problem))) == {0: [1]}


def test_the_naive_order_does_not_share_rejections() -> None:
    # Call 0 has failed for disjunct 0, but disjunct 1 comes to its own first test before it comes to that.
    disjuncts = [[0], [1, 0]]
    case = Case(disjuncts, [0, 1], [0.5, 0.5], [1.0, 1.0], [[0, 1]], [[False, True]], [set()])
    assert play(case, case.rounds(ORDERS["naive"](case.problem))) == {0: [0, 1]}
    assert play(case, case.rounds(ORDERS["sequential"](case.problem))) == {0: [0]}


def test_unexpected_answers_are_refused() -> None:
    case = Case([[0]], [0, 0], [0.5, 0.5], [1.0], [[0], [0]], [[True, True]] * 2, [set(), set()])
    rounds = case.rounds(ORDERS["static_greedy"](case.problem))
    value, yes = np.array([0]), np.array([True, True])
    with pytest.raises(ValueError, match="does not wait for one"):
        rounds.settle(value, value, yes)
    items, calls = rounds.next_calls()
    assert (items.tolist(), calls.tolist(), rounds.answer_offsets(calls).tolist()) == ([0, 1], [0, 0], [0, 2, 4])
    with pytest.raises(ValueError, match="number of answers"):
        rounds.settle(items, calls, yes)
    with pytest.raises(ValueError, match="two answers"):
        rounds.settle(np.array([0, 0]), calls, np.array([True] * 4))
    with pytest.raises(ValueError, match="not in the batch"):
        rounds.settle(np.array([7]), value, yes)
    rounds.settle(value, value, yes)
    assert rounds.outcomes.tolist() == [ACCEPTED, UNDECIDED]
    assert not len(rounds.next_calls()[0])
    assert not rounds.is_done


def test_inconsistent_problems_are_refused() -> None:
    for arguments, message in (
        (([[1]], [0], [0.5], [1.0]), "a test that does not exist"),
        (([[0]], [1], [0.5], [1.0]), "a call that does not exist"),
        (([[0]], [0], [1.5], [1.0]), "between 0 and 1"),
        (([[0]], [0], [float("nan")], [1.0]), "between 0 and 1"),
        (([[0]], [0], [0.5], [-1.0]), "not negative"),
        (([[0]], [0], [0.5, 0.5], [1.0]), "2 probabilities"),
    ):
        with pytest.raises(ValueError, match=message):
            OrderProblem.of(*arguments)
    problem = OrderProblem.of([[0]], [0], [0.5], [1.0])
    for offsets, disjuncts in (([0, 2], [0]), ([0, 1], [3]), ([1, 1], [0]), ([0, 1], [-1])):
        with pytest.raises(ValueError, match="active disjunct"):
            build_batch_layout(problem, ORDERS["adaptive"](problem), np.array(offsets), np.array(disjuncts))


def test_a_simulation_counts_the_calls_of_rounds() -> None:
    dice = np.random.default_rng(3)
    disjuncts = [sorted(set(dice.integers(0, 60, 4).tolist())) for _ in range(150)]
    problem = OrderProblem.of(disjuncts, np.arange(60) // 2, dice.random(60) * 0.5, dice.random(30))
    truths = draw_truths(problem, 3, seed=5)
    offsets, active = everything(problem, 2)
    for name, make in ORDERS.items():
        order = make(problem)
        followed = Simulation(problem, order, offsets, active).follow(truths)
        for row, truth in enumerate(truths.tolist()):
            case = Case(
                disjuncts, problem.test_calls.tolist(), [], [], [list(range(150))] * 2, [truth] * 2, [set(), set()]
            )
            rounds = Rounds(problem, order, offsets, active)
            asked = _played(problem, rounds, truth)
            part = slice(2 * row, 2 * row + 2)
            assert followed.calls[part].tolist() == [len(asked[0]), len(asked[1])], name
            assert followed.costs[part] == pytest.approx([problem.costs[asked[0]].sum()] * 2)
            accepted = sum(case.may_be(0, disjunct) == {ACCEPTED} for disjunct in range(150))
            assert followed.accepted[part].tolist() == [accepted, accepted]
            if order.kind is not INDEPENDENT:
                assert followed.touched[part].sum() <= rounds.touched


def _played(problem: OrderProblem, rounds: Rounds, truth: list[bool]) -> dict[int, list[int]]:
    asked: dict[int, list[int]] = {0: [], 1: []}
    while not rounds.is_done:
        items, calls = rounds.next_calls()
        for item, call in zip(items.tolist(), calls.tolist(), strict=True):
            asked[item].append(call)
        tests = np.concatenate([problem.tests_of_call(call) for call in calls.tolist()])
        rounds.settle(items, calls, np.array(truth)[tests])
    return asked


def test_the_order_of_the_paper_is_refused_if_too_many_disjuncts_share_a_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runnel.papers.operators.kruskal.MAX_PAIRS", 2)
    with pytest.raises(ValueError, match="3 pairs of disjuncts share a test"):
        ORDERS["kruskal"](OrderProblem.of([[0], [0], [0]], [0], [0.5], [1.0]))
