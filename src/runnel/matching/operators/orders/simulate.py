"""Following an order with answers that are known: how many calls it makes, what they cost, what it decides.

In: a problem, an order, and for each of some items the truth of every test. Out: counts. This is how orders are
compared, before one is chosen and in benchmarks; the steps are those that decide real items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, read_only
from runnel.matching.operators.orders.batch_arrays import ACCEPTED
from runnel.matching.operators.orders.batch_layout import lay_out
from runnel.matching.operators.orders.batch_state import begin
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem, everything

_NO_FAILURES = read_only(np.empty(0, dtype=np.uint8))


@dataclass(frozen=True, slots=True)
class Followed:
    """What it took to decide some items: their calls, the calls' cost, and the entries looked at, item by item."""

    calls: Array
    costs: Array
    touched: Array
    accepted: Array


class Simulation:
    """An order over the active ways of some items, or over all ways of one, laid out to be followed many times."""

    def __init__(
        self,
        problem: OrderProblem,
        order: Order,
        active_offsets: Array | None = None,
        active_ways: Array | None = None,
    ) -> None:
        if active_offsets is None or active_ways is None:
            active_offsets, active_ways = everything(problem)
        self._problem = problem
        self._advance = order.kind.advance
        self._layout = lay_out(problem, order, active_offsets, active_ways)
        self._before = begin(self._layout, order.kind)
        self._items = read_only(np.arange(len(active_offsets) - 1))
        self._owners = np.repeat(np.arange(len(active_offsets) - 1), np.diff(active_offsets))

    def follow(self, truths: Array) -> Followed:
        """Decide the items, once for each row of truths (one truth value for every test of the problem)."""
        items = len(self._before.asked)
        counts = [np.zeros((len(truths), items), dtype=kind) for kind in (np.int64, np.float64, np.int64, np.int64)]
        calls, costs, touched, accepted = counts
        state, problem = self._before.copy(), self._problem
        for row in range(len(truths)):
            state.put_back(self._before)
            answers = read_only(truths[row][problem.call_tests].astype(np.uint8))
            given = (self._items, answers, problem.call_offsets, _NO_FAILURES)
            self._advance(self._layout, state, *given, True, problem.costs, calls[row], costs[row])
            touched[row] = state.touched
            accepted[row] = np.bincount(self._owners[state.outcomes == ACCEPTED], minlength=items)
        return Followed(*(count.ravel() for count in counts))


def draw_truths(problem: OrderProblem, rows: int, seed: int) -> Array:
    """Truths of all tests, drawn from their chances, each for itself (section 3 takes predicates as independent)."""
    dice = np.random.default_rng(seed)
    return np.asarray(dice.random((rows, problem.tests)) < problem.chances)
