"""Sequential evaluation (section 4.1): at most d times the calls of the best order, for d tests per disjunct."""

from __future__ import annotations

import numpy as np

from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.advance_disjuncts import MARKED


def sequential(problem: OrderProblem) -> Order:
    """Evaluate undecided disjuncts in declared order, and of each the tests that any undecided disjunct needs.

    In algorithm 1 as written, a disjunct that was begun is evaluated to its end even after it is rejected (line 7).
    """
    return Order.by_disjuncts("sequential", MARKED, problem, np.arange(problem.disjuncts))
