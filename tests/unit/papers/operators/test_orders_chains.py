"""Chains that are updated while disjuncts are added and removed equal newly built chains."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.chains import Chains
from runnel.papers.operators.kruskal import saving_of
from runnel.papers.operators.sub_order import sub_order

TESTS = 9
WAYS = st.lists(st.integers(0, TESTS - 1), max_size=5, unique=True)
STEPS = st.lists(st.one_of(WAYS, st.integers(0, 30), st.none()), max_size=60)


@given(steps=STEPS, seed=st.integers(0, 999))
@settings(deadline=None, max_examples=120)
def test_kept_chains_are_as_those_built_anew(steps: list[list[int] | int | None], seed: int) -> None:
    dice = np.random.default_rng(seed)
    chances = np.round(dice.random(TESTS), 1)
    costs = np.round(dice.random(TESTS) * 3, 1)
    kept, disjuncts = Chains(chances, costs), dict[int, list[int]]()
    for step in steps:
        match step:
            case list():
                disjuncts[kept.add(step)] = step
            case int() if disjuncts:
                disjunct = sorted(disjuncts)[step % len(disjuncts)]
                kept.remove(disjunct)
                del disjuncts[disjunct]
            case _:
                kept.order()
    rebuilt, numbers = Chains(chances, costs), dict[int, int]()
    for disjunct, tests in disjuncts.items():
        numbers[rebuilt.add(tests)] = disjunct
    assert kept.order().tolist() == [numbers[disjunct] for disjunct in rebuilt.order().tolist()]
    for number, disjunct in numbers.items():
        assert kept.chain(disjunct).tolist() == rebuilt.chain(number).tolist()


def test_a_few_changes_among_many_ways_move_what_they_concern() -> None:
    dice = np.random.default_rng(4)
    chances, costs = np.round(dice.random(400), 1), np.ones(400)
    disjuncts = [sorted(set(dice.integers(0, 400, 4).tolist())) for _ in range(600)]
    kept = Chains.of(OrderProblem.of(disjuncts, np.arange(400), chances, costs))
    alive = dict(enumerate(disjuncts))
    for _ in range(40):
        for _ in range(int(dice.integers(0, 3))):
            tests = sorted(set(dice.integers(0, 400, 4).tolist()))
            alive[kept.add(tests)] = tests
        for disjunct in dice.choice(list(alive), int(dice.integers(0, 3)), replace=False).tolist():
            kept.remove(disjunct)
            del alive[disjunct]
        numbers = list(alive)
        rebuilt = Chains.of(OrderProblem.of(list(alive.values()), np.arange(400), chances, costs))
        assert kept.order().tolist() == [numbers[disjunct] for disjunct in rebuilt.order().tolist()]


@given(st.lists(WAYS, min_size=1, max_size=12), st.integers(0, 999))
@settings(deadline=None, max_examples=80)
def test_scores_are_the_pairwise_savings_summed(ways: list[list[int]], seed: int) -> None:
    dice = np.random.default_rng(seed)
    chances, costs = dice.random(TESTS), dice.random(TESTS) + 0.1
    problem = OrderProblem.of(ways, np.arange(TESTS), chances, costs)
    order = sub_order(problem)
    chains = [
        order.chains[problem.disjunct_offsets[disjunct] : problem.disjunct_offsets[disjunct + 1]].tolist()
        for disjunct in range(len(ways))
    ]
    priorities = costs / (1 - chances)
    assert chains == [sorted(disjunct, key=lambda test: (priorities[test], test)) for disjunct in ways]
    scores = [
        sum(_saving(chain, other, chances, costs) for number, other in enumerate(chains) if number != disjunct)
        for disjunct, chain in enumerate(chains)
    ]
    results = [scores[disjunct] for disjunct in np.argsort(order.positions).tolist()]
    assert results == pytest.approx(sorted(scores, reverse=True), abs=1e-6)


def _saving(numbers: list[int], other: list[int], chances: np.ndarray, costs: np.ndarray) -> float:
    """What evaluating one chain before another saves, by the sums of section 4.2.4."""
    total = 0.0
    for test in set(numbers) & set(other):
        (reach, cost), (other_reach, other_cost) = (
            _before(chain, test, chances, costs) for chain in (numbers, other)
        )
        total += (1 - chances[test]) * (reach * other_cost - other_reach * cost)
    return total


def _before(chain: list[int], test: int, chances: np.ndarray, costs: np.ndarray) -> tuple[float, float]:
    reach, cost = 1.0, 0.0
    for above in chain[: chain.index(test)]:
        cost += reach * costs[above]
        reach *= chances[above]
    return reach, cost


def test_tests_that_never_fail_come_last_and_those_that_cost_nothing_first() -> None:
    chains = Chains([1.0, 0.5, 0.5, 0.9, 0.5], [1.0, 1.0, 0.0, 1.0, 1.0])
    chains.add([0, 4, 1, 3, 2])
    assert chains.chain(0).tolist() == [2, 1, 4, 3, 0]


def test_new_tests_become_known_and_unknown_ones_are_refused() -> None:
    chains = Chains([0.5], [1.0])
    with pytest.raises(ValueError, match="unknown test"):
        chains.add([1])
    chains.grow([0.1], [1.0])
    assert chains.chain(chains.add([0, 1])).tolist() == [1, 0]
    chains.remove(0)
    with pytest.raises(ValueError, match="no disjunct 0"):
        chains.remove(0)
    assert chains.order().tolist() == []


def test_the_room_of_removed_ways_is_used_again() -> None:
    chains = Chains(np.linspace(0.1, 0.9, 20), np.ones(20))
    dice = np.random.default_rng(1)
    for _ in range(300):
        disjuncts = [chains.add(sorted(set(dice.integers(0, 20, 4).tolist()))) for _ in range(3)]
        for disjunct in disjuncts[1:]:
            chains.remove(disjunct)
    assert len(chains.order()) == 300
    assert len(chains.tests()) < 3_000


def _expected_cost(chains: list[list[int]], chances: list[float], costs: list[float]) -> float:
    """The cost of some chains, one after the other, over all outcomes of their tests."""
    tests = sorted({test for chain in chains for test in chain})
    total = 0.0
    for outcome in product((False, True), repeat=len(tests)):
        passed = dict(zip(tests, outcome, strict=True))
        weight = prod(chances[test] if passed[test] else 1.0 - chances[test] for test in tests)
        known: set[int] = set()
        for chain in chains:
            for test in chain:
                if any(not passed[value] for value in known if value in chain):
                    break
                total += 0.0 if test in known else weight * costs[test]
                known.add(test)
    return total


@given(st.data())
@settings(deadline=None, max_examples=60, derandomize=True)
def test_the_savings_of_a_pair_are_exact_however_many_tests_it_shares(data: st.DataObject) -> None:
    tests = list(range(5))
    chances = [data.draw(st.floats(0.05, 0.95)) for _ in tests]
    costs = [data.draw(st.floats(0.1, 5.0)) for _ in tests]
    chains = [sorted(data.draw(st.sets(st.sampled_from(tests), min_size=3, max_size=4))) for _ in range(2)]
    saved = _expected_cost(chains[::-1], chances, costs) - _expected_cost(chains, chances, costs)
    value, other = (np.array(chain) for chain in chains)
    saving = saving_of(value, other, np.array(chances), np.array(costs))
    assert saving == pytest.approx(saved, abs=1e-9)


def test_the_pair_that_shares_two_of_three_tests_is_weighed_by_its_true_difference() -> None:
    # Evaluating [0, 2] first costs 1.85 calls, [0, 1, 2] first 2.00: shared tests pass once, not once in each chain.
    chances, costs = np.array([0.5, 0.6, 0.7]), np.ones(3)
    assert saving_of(np.array([0, 1, 2]), np.array([0, 2]), chances, costs) == pytest.approx(-0.15)
    assert saving_of(np.array([0, 2]), np.array([0, 1, 2]), chances, costs) == pytest.approx(0.15)
