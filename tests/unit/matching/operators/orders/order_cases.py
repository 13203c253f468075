"""Generated problems with their expected outcomes, computed in plain Python from every test of every disjunct."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from runnel.matching.operators.orders.batch_arrays import ACCEPTED, REJECTED, UNKNOWN
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.registry import MakeOrder, installed_orders
from runnel.matching.operators.orders.rounds import Rounds
from runnel.papers.operators.kruskal import kruskal

ORDERS: dict[str, MakeOrder] = {**installed_orders(), "kruskal": kruskal}
"""The orders that can be selected, and `kruskal`, which serves only for comparison."""


@dataclass(frozen=True)
class Case:
    """A problem, the active disjuncts of items, and for each item the outcomes of tests and the calls that fail."""

    disjuncts: list[list[int]]
    test_calls: list[int]
    chances: list[float]
    costs: list[float]
    active: list[list[int]]
    truths: list[list[bool]]
    failing: list[set[int]]

    @property
    def problem(self) -> OrderProblem:
        return OrderProblem.of(self.disjuncts, self.test_calls, self.chances, self.costs)

    def rounds(self, order: Order) -> Rounds:
        offsets = np.cumsum([0, *map(len, self.active)])
        return Rounds(
            self.problem,
            order,
            offsets,
            np.array([disjunct for disjuncts in self.active for disjunct in disjuncts], dtype=int),
        )

    def pairs(self) -> list[tuple[int, int]]:
        return [(item, disjunct) for item, disjuncts in enumerate(self.active) for disjunct in disjuncts]

    def may_be(self, item: int, disjunct: int) -> set[int]:
        """Return the possible outcomes. With failing calls they depend on which call is made first."""
        results = set()
        for test in self.disjuncts[disjunct]:
            if self.test_calls[test] in self.failing[item]:
                results.add(UNKNOWN)
            elif not self.truths[item][test]:
                results.add(REJECTED)
        return results or {ACCEPTED}


CHANCES = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
COSTS = st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0, 1e6))


@st.composite
def cases(draw: st.DrawFn, failing: bool = True) -> Case:
    calls = draw(st.integers(1, 8))
    test_calls = draw(st.lists(st.integers(0, calls - 1), min_size=1, max_size=12))
    tests = st.integers(0, len(test_calls) - 1)
    disjuncts = draw(st.lists(st.lists(tests, max_size=5, unique=True), min_size=1, max_size=10))
    chances = draw(st.lists(CHANCES, min_size=len(test_calls), max_size=len(test_calls)))
    costs = draw(st.lists(COSTS, min_size=calls, max_size=calls))
    some_ways = st.sets(st.integers(0, len(disjuncts) - 1)).map(sorted)
    active = draw(st.lists(some_ways, max_size=5))
    seed = draw(st.integers(0, 2**32 - 1))
    dice = np.random.default_rng(seed)
    share = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    truths = [(dice.random(len(test_calls)) < share).tolist() for _ in active]
    broken = [{call for call in range(calls) if failing and dice.random() < 0.2} for _ in active]
    return Case(disjuncts, test_calls, chances, costs, active, truths, broken)


def play(case: Case, rounds: Rounds, seed: int = 0) -> dict[int, list[int]]:
    """Answer all calls, some later than others, and return the calls of each item."""
    problem, dice = case.problem, np.random.default_rng(seed)
    asked: dict[int, list[int]] = {item: [] for item in range(len(case.active))}
    waiting: list[tuple[int, int]] = []
    while not rounds.is_done:
        items, calls = rounds.next_calls()
        assert len(set(items.tolist())) == len(items)
        for item, call in zip(items.tolist(), calls.tolist(), strict=True):
            asked[item].append(call)
            waiting.append((item, call))
        assert rounds.waiting == len(waiting)
        if not waiting:
            break
        dice.shuffle(waiting)
        now, waiting = waiting[: (len(waiting) + 1) // 2], waiting[(len(waiting) + 1) // 2 :]
        passed = [case.truths[item][test] for item, call in now for test in problem.tests_of_call(call).tolist()]
        failed = [call in case.failing[item] for item, call in now]
        answered = np.array(now, dtype=int).reshape(-1, 2)
        rounds.settle(answered[:, 0], answered[:, 1], np.array(passed, dtype=bool), np.array(failed))
    assert rounds.is_done
    assert not len(rounds.next_calls()[0])
    return asked
