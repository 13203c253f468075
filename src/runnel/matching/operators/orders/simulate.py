"""Simulate an order with known test outcomes, to count its calls and their cost.

In: a problem, an order, and the outcome of every test for each simulated item. Out: counts. Orders are
simulated before one is chosen, and in benchmarks. The simulation uses the same loops as the decision of real items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, read_only
from runnel.matching.operators.orders.batch_arrays import ACCEPTED
from runnel.matching.operators.orders.batch_layout import build_batch_layout
from runnel.matching.operators.orders.batch_state import create_state
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem, everything

_NO_FAILURES = read_only(np.empty(0, dtype=np.uint8))


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation per item: calls, their cost, entries that were read, and accepted disjuncts."""

    calls: Array
    costs: Array
    touched: Array
    accepted: Array


class Simulation:
    """Simulates an order for the active disjuncts of items, or for one item with all disjuncts."""

    def __init__(
        self,
        problem: OrderProblem,
        order: Order,
        active_offsets: Array | None = None,
        active_disjuncts: Array | None = None,
    ) -> None:
        if active_offsets is None or active_disjuncts is None:
            active_offsets, active_disjuncts = everything(problem)
        self._problem = problem
        self._advance = order.kind.advance
        self._layout = build_batch_layout(problem, order, active_offsets, active_disjuncts)
        self._initial_state = create_state(self._layout, order.kind)
        self._items = read_only(np.arange(len(active_offsets) - 1))
        self._owners = np.repeat(np.arange(len(active_offsets) - 1), np.diff(active_offsets))

    def follow(self, truths: Array) -> SimulationResult:
        """Decide the items once per row of `truths`, which contains the outcome of every test of the problem."""
        items = len(self._initial_state.asked)
        counts = [np.zeros((len(truths), items), dtype=kind) for kind in (np.int64, np.float64, np.int64, np.int64)]
        calls, costs, touched, accepted = counts
        state, problem = self._initial_state.copy(), self._problem
        for row in range(len(truths)):
            state.copy_from(self._initial_state)
            answers = read_only(truths[row][problem.call_tests].astype(np.uint8))
            arrays = (self._items, answers, problem.call_offsets, _NO_FAILURES)
            self._advance(self._layout, state, *arrays, True, problem.costs, calls[row], costs[row])
            touched[row] = state.touched
            accepted[row] = np.bincount(self._owners[state.outcomes == ACCEPTED], minlength=items)
        return SimulationResult(*(count.ravel() for count in counts))


def draw_truths(problem: OrderProblem, rows: int, seed: int) -> Array:
    """Draw `rows` random outcomes of all tests, independently of each other (as section 3 of the paper assumes)."""
    generator = np.random.default_rng(seed)
    return np.asarray(generator.random((rows, problem.tests)) < problem.chances)
