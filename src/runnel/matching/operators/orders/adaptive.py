"""The adaptive orders: which call comes next depends on what the item's calls have answered so far."""

from __future__ import annotations

from runnel.matching.operators.orders.order import Order, OrderKind
from runnel.matching.operators.orders.problem import OrderProblem


def adaptive(problem: OrderProblem) -> Order:
    """Always the call with the most worth for its cost.

    A call's worth is, over its tests, the probability that the test fails times the undecided ways that it would
    reject.
    """
    return Order.adaptive("adaptive", OrderKind.ADAPTIVE, problem)


def adaptive_weighted(problem: OrderProblem) -> Order:
    """The same, but a way counts as one over its remaining tests.

    The fewer there are, the less likely others are to reject it. That often saves a few calls in a hundred. But every
    test that passes changes what other calls are worth, so the bookkeeping takes longer.
    """
    return Order.adaptive("adaptive_weighted", OrderKind.WEIGHTED, problem)
