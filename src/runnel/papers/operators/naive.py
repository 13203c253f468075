"""The baseline of section 5.2: evaluate disjuncts one by one, independently of each other."""

from __future__ import annotations

import numpy as np

from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.advance_disjuncts import INDEPENDENT


def naive(problem: OrderProblem) -> Order:
    """Evaluate disjuncts as declared, and their tests as declared, until one fails or all have passed.

    The answer to a call is stored and used again, as in the paper. But a disjunct is not skipped if one of its tests
    is known to have failed: it is rejected only when it reaches that test.
    """
    return Order.by_disjuncts("naive", INDEPENDENT, problem, np.arange(problem.disjuncts))
