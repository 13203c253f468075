"""Choose the order with the lowest expected cost by simulating the candidates with random test outcomes.

In: a problem whose costs are seconds and, optionally, the active disjuncts of previous items. Out: the expected cost
per item of each order, and the best order. The random generator is seeded, so equal problems lead to equal choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.registry import CANDIDATES, find_order
from runnel.matching.operators.orders.simulate import Simulation, draw_truths

CALL_SECONDS = 0.25e-6
"""Bookkeeping time per call, without the call itself. `OrderKind` has the time per entry."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The expected number of calls per item, their cost, and the bookkeeping time, in seconds."""

    order: str
    calls: float
    cost: float
    bookkeeping: float

    @property
    def seconds(self) -> float:
        """The expected total time per item."""
        return self.cost + self.bookkeeping


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen order, and the predictions of all candidates, the best first."""

    order: Order
    predictions: tuple[Prediction, ...]


def choose_order(
    problem: OrderProblem,
    active_offsets: Array | None = None,
    active_disjuncts: Array | None = None,
    *,
    candidates: Sequence[str] = CANDIDATES,
    truths: int = 8,
    seed: int = 1,
) -> Choice:
    """Return the order with the lowest expected time for items with these active disjuncts, by default all.

    >>> problem = OrderProblem.of([[0, 1], [1, 2]], [0, 1, 2], [0.9, 0.1, 0.9], [0.04, 0.04, 0.04])
    >>> choice = choose_order(problem)
    >>> choice.order.name, [prediction.order for prediction in choice.predictions]
    ('static_greedy', ['static_greedy', 'adaptive'])
    """
    drawn = draw_truths(problem, truths, seed)
    orders = {name: find_order(name)(problem) for name in candidates}
    predictions = [_predict(problem, order, active_offsets, active_disjuncts, drawn) for order in orders.values()]
    predictions.sort(key=lambda prediction: prediction.seconds)
    return Choice(orders[predictions[0].order], tuple(predictions))


def _predict(
    problem: OrderProblem, order: Order, active_offsets: Array | None, active_disjuncts: Array | None, truths: Array
) -> Prediction:
    followed = Simulation(problem, order, active_offsets, active_disjuncts).follow(truths)
    calls, cost, touched = (
        float(np.mean(counts)) if len(counts) else 0.0
        for counts in (followed.calls, followed.costs, followed.touched)
    )
    return Prediction(order.name, calls, cost, CALL_SECONDS * calls + order.kind.entry_seconds * touched)
