"""The adaptive order: which call comes next depends on what the item's calls have answered so far."""

from __future__ import annotations

from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import Problem


def adaptive(problem: Problem) -> Order:
    """Always the call with the most worth for its cost.

    A call's worth is, over its tests, the probability that the test fails times the undecided ways that it would
    reject. A way counts as one over its remaining tests: the fewer there are, the less likely others are to reject
    it.
    """
    return Order.adaptive("adaptive", problem)
