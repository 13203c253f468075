"""The baseline of section 5.2: ways one by one, each for itself."""

from __future__ import annotations

import numpy as np

from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.advance_disjuncts import INDEPENDENT


def naive(problem: OrderProblem) -> Order:
    """Ways as declared, tests as declared, until one fails or all have passed.

    The answer to a call is remembered and used again, as the paper has it. But a way is not skipped because a test
    of it is known to have failed: it learns so when its own turn comes to that test.
    """
    return Order.by_disjuncts("naive", INDEPENDENT, problem, np.arange(problem.disjuncts))
