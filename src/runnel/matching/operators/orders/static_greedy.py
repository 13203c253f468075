"""The static greedy order: one sequence of calls for all items, chosen by the expected undecided disjuncts."""

from __future__ import annotations

import heapq

import numpy as np

from runnel.arrays import IDENTIFIER, Array
from runnel.kernel import kernel
from runnel.matching.operators.orders.advance import RANKS
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem


def static_greedy(problem: OrderProblem) -> Order:
    """Return the order whose next call is expected to reject most disjuncts per cost, given the previous calls.

    A disjunct is undecided with the probability that all its previous tests have passed. The worth of a call only
    decreases, so a call whose worth is unchanged when it reaches the top of the heap is the best call.

    >>> problem = OrderProblem.of([[0, 1], [1, 2], [2]], [0, 1, 2], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0])
    >>> np.argsort(static_greedy(problem).ranks).tolist()
    [1, 2, 0]
    """
    sequence = _choose(
        problem.disjunct_offsets,
        problem.disjunct_tests,
        problem.test_calls,
        problem.test_offsets,
        problem.test_disjuncts,
        problem.call_offsets,
        problem.call_tests,
        problem.chances,
        problem.gains,
    )
    return Order.by_calls("static_greedy", RANKS, problem, sequence)


@kernel
def _choose(
    disjunct_offsets: Array,
    disjunct_tests: Array,
    test_calls: Array,
    test_offsets: Array,
    test_disjuncts: Array,
    call_offsets: Array,
    call_tests: Array,
    chances: Array,
    test_gains: Array,
) -> Array:
    calls = len(call_offsets) - 1
    undecided = np.ones(len(disjunct_offsets) - 1)
    worth = np.zeros(calls)
    for test in range(len(test_calls)):
        worth[test_calls[test]] += test_gains[test] * (test_offsets[test + 1] - test_offsets[test])
    heap = [(-worth[call], call) for call in range(calls)]
    heapq.heapify(heap)
    sequence = np.empty(calls, dtype=IDENTIFIER)
    count = 0
    while count < calls:
        negative_worth, call = heap[0]
        if worth[call] < -negative_worth:
            heapq.heapreplace(heap, (-worth[call], call))
            continue
        heapq.heappop(heap)
        sequence[count] = call
        count += 1
        for test in call_tests[call_offsets[call] : call_offsets[call + 1]]:
            for disjunct in test_disjuncts[test_offsets[test] : test_offsets[test + 1]]:
                decrease = undecided[disjunct] * (1.0 - chances[test])
                undecided[disjunct] -= decrease
                for other in disjunct_tests[disjunct_offsets[disjunct] : disjunct_offsets[disjunct + 1]]:
                    worth[test_calls[other]] -= test_gains[other] * decrease
    return sequence
