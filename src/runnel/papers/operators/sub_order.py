"""Sub-Order (section 4.2): chains sorted inside, and ordered by what evaluating each first saves the others."""

from __future__ import annotations

from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.advance_disjuncts import CHAINS
from runnel.papers.operators.chains import Chains


def sub_order(problem: OrderProblem) -> Order:
    """Order the tests of a disjunct by cost per probability to fail, and disjuncts by their score, the highest first.

    The score is the paper's pairwise difference, summed over all other chains at once. The paper goes on to a tour by
    Kruskal's method, which takes pairs with the least savings first; `kruskal` does that, and gains nothing.
    """
    chains = Chains.of(problem)
    return Order.by_disjuncts("sub_order", CHAINS, problem, chains.order(), chains.tests())
