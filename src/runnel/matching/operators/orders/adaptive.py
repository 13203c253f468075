"""The adaptive order: which call comes next depends on what the item's calls have answered so far."""

from __future__ import annotations

from runnel.matching.operators.orders.advance import ADAPTIVE
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem


def adaptive(problem: OrderProblem) -> Order:
    """Always the call with the most worth for its cost.

    A call's worth is, over its tests, the probability that the test fails times the undecided disjuncts that it would
    reject.
    """
    return Order.by_scores("adaptive", ADAPTIVE, problem)
