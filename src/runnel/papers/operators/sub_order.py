"""Sub-Order (section 4.2): sort the tests of each chain, and order chains by the saving of evaluating them first."""

from __future__ import annotations

from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.advance_disjuncts import CHAINS
from runnel.papers.operators.chains import Chains


def sub_order(problem: OrderProblem) -> Order:
    """Order the tests of a disjunct by cost per probability to fail, and disjuncts by their score, the highest first.

    The score is the paper's pairwise difference, summed over all other chains at once. The paper then builds a tour
    by Kruskal's method, from the pairs with the smallest savings first. `kruskal` does so, without a benefit.
    """
    chains = Chains.of(problem)
    return Order.by_disjuncts("sub_order", CHAINS, problem, chains.order(), chains.tests())
