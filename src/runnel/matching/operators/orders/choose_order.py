"""Choosing an order: each is tried on truths drawn from the chances; the one expected to cost least wins.

In: a problem whose costs are seconds, and where there are some, the active ways of items that came before. Out: what
each order is expected to cost for an item, and the best. The draw is seeded: the same problem gives the same choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from runnel.arrays import Array
from runnel.matching.operators.orders.order import Order, OrderKind
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.registry import ORDERS
from runnel.matching.operators.orders.simulate import Simulation, draw_truths

CANDIDATES = ("sequential", "sub_order", "static_greedy", "adaptive", "adaptive_weighted")
CALL_SECONDS = 0.25e-6
ENTRY_SECONDS: Mapping[OrderKind, float] = MappingProxyType(
    {
        OrderKind.INDEPENDENT: 50e-9,
        OrderKind.MARKED: 50e-9,
        OrderKind.CHAINS: 50e-9,
        OrderKind.RANKS: 30e-9,
        OrderKind.ADAPTIVE: 55e-9,
        OrderKind.WEIGHTED: 85e-9,
    }
)
"""What it takes to name a call and settle it, and to look at an entry meanwhile, besides the call itself.

Measured for rounds over 2,048 items with 50 to 500 of 10,000 ways each: from round to round an item's arrays leave
the cache. A static order looks at entries one after another; where ways are weighted, entries make calls move.
"""


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
    >>> choice.order.name, [prediction.order for prediction in choice.predictions][-1]
    ('static_greedy', 'sequential')
    """
    drawn = draw_truths(problem, truths, seed)
    orders = {name: ORDERS[name](problem) for name in candidates}
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
    return Prediction(order.name, calls, cost, CALL_SECONDS * calls + ENTRY_SECONDS[order.kind] * touched)
