"""The static greedy order: one sequence of calls for all items, chosen by what is expected to be undecided."""

from __future__ import annotations

import heapq

import numpy as np

from runnel.arrays import IDENTIFIER, Array
from runnel.kernel import kernel
from runnel.matching.operators.orders.advance import RANKS
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem


def static_greedy(problem: OrderProblem) -> Order:
    """Next is always the call that is expected to reject most ways for its cost, after those before it.

    A way is undecided with the probability that all its tests before have passed. Worths only fall, so a call that is
    still the best when it comes to the top of the heap is the best of all.

    >>> problem = OrderProblem.of([[0, 1], [1, 2], [2]], [0, 1, 2], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0])
    >>> np.argsort(static_greedy(problem).ranks).tolist()
    [1, 2, 0]
    """
    sequence = _choose(
        problem.way_offsets,
        problem.way_tests,
        problem.test_calls,
        problem.test_offsets,
        problem.test_ways,
        problem.call_offsets,
        problem.call_tests,
        problem.chances,
        problem.gains,
    )
    return Order.by_calls("static_greedy", RANKS, problem, sequence)


@kernel
def _choose(
    way_offsets: Array,
    way_tests: Array,
    test_calls: Array,
    test_offsets: Array,
    test_ways: Array,
    call_offsets: Array,
    call_tests: Array,
    chances: Array,
    test_gains: Array,
) -> Array:
    calls = len(call_offsets) - 1
    undecided = np.ones(len(way_offsets) - 1)
    worth = np.zeros(calls)
    for test in range(len(test_calls)):
        worth[test_calls[test]] += test_gains[test] * (test_offsets[test + 1] - test_offsets[test])
    tops = [(-worth[call], call) for call in range(calls)]
    heapq.heapify(tops)
    sequence = np.empty(calls, dtype=IDENTIFIER)
    count = 0
    while count < calls:
        known, call = tops[0]
        if worth[call] < -known:
            heapq.heapreplace(tops, (-worth[call], call))
            continue
        heapq.heappop(tops)
        sequence[count] = call
        count += 1
        for test in call_tests[call_offsets[call] : call_offsets[call + 1]]:
            for way in test_ways[test_offsets[test] : test_offsets[test + 1]]:
                less = undecided[way] * (1.0 - chances[test])
                undecided[way] -= less
                for other in way_tests[way_offsets[way] : way_offsets[way + 1]]:
                    worth[test_calls[other]] -= test_gains[other] * less
    return sequence
