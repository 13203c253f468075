"""The adaptive order, in which the next call of an item depends on the answers to its previous calls."""

from __future__ import annotations

from runnel.matching.operators.orders.advance import ADAPTIVE
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem


def adaptive(problem: OrderProblem) -> Order:
    """Return the order that always makes the call with the highest ratio of worth to cost.

    The worth of a call is the sum over its tests of the probability that the test fails, multiplied by the number of
    undecided disjuncts that the failure would reject.
    """
    return Order.by_scores("adaptive", ADAPTIVE, problem)
