"""Choosing an order: the candidates are tried on truths drawn from the chances; the one expected to cost least wins.

In: a problem whose costs are seconds, and where there are some, the active ways of items that came before. Out: what
each order is expected to cost for an item, and the best. The draw is seeded: the same problem gives the same choice.
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
"""What it takes to name a call and settle it, besides the call itself; `OrderKind` has the time for each entry."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What an order is expected to take for one item: calls, their cost, and the bookkeeping, in seconds."""

    order: str
    calls: float
    cost: float
    bookkeeping: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.cost + self.bookkeeping


@dataclass(frozen=True, slots=True)
class Choice:
    """The order that was chosen, and what each was expected to take, the best first."""

    order: Order
    predictions: tuple[Prediction, ...]


def choose_order(
    problem: OrderProblem,
    active_offsets: Array | None = None,
    active_ways: Array | None = None,
    *,
    candidates: Sequence[str] = CANDIDATES,
    truths: int = 8,
    seed: int = 1,
) -> Choice:
    """The order that is expected to take least for an item with such active ways; all ways where none are given.

    >>> problem = OrderProblem.of([[0, 1], [1, 2]], [0, 1, 2], [0.9, 0.1, 0.9], [0.04, 0.04, 0.04])
    >>> choice = choose_order(problem)
    >>> choice.order.name, [prediction.order for prediction in choice.predictions]
    ('static_greedy', ['static_greedy', 'adaptive'])
    """
    drawn = draw_truths(problem, truths, seed)
    orders = {name: find_order(name)(problem) for name in candidates}
    found = [_predicted(problem, order, active_offsets, active_ways, drawn) for order in orders.values()]
    found.sort(key=lambda prediction: prediction.seconds)
    return Choice(orders[found[0].order], tuple(found))


def _predicted(
    problem: OrderProblem, order: Order, active_offsets: Array | None, active_ways: Array | None, truths: Array
) -> Prediction:
    followed = Simulation(problem, order, active_offsets, active_ways).follow(truths)
    calls, cost, touched = (
        float(np.mean(counted)) if len(counted) else 0.0
        for counted in (followed.calls, followed.costs, followed.touched)
    )
    return Prediction(order.name, calls, cost, CALL_SECONDS * calls + order.kind.entry_seconds * touched)
