"""Sequential evaluation (section 4.1): at most d times the calls of the best order, d being the longest way."""

from __future__ import annotations

import numpy as np

from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.advance_disjuncts import MARKED


def sequential(problem: OrderProblem) -> Order:
    """Undecided ways as declared; of each all tests as declared that some undecided way still needs.

    As algorithm 1 is written, a way that was begun is gone through to its end even after it is rejected (line 7).
    """
    return Order.by_disjuncts("sequential", MARKED, problem, np.arange(problem.disjuncts))
