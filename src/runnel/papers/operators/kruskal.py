"""Sub-Order with the paper's own order of chains (section 4.2.5): a path found by Kruskal's method. For comparison.

There is an edge between every two chains that share a test, so this order suits thousands of disjuncts, but not tens
of thousands that share popular tests.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import IDENTIFIER, Array, read_only
from runnel.kernel import Number, kernel
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.papers.operators.advance_disjuncts import CHAINS
from runnel.papers.operators.chains import Chains

MOST_PAIRS = 30_000_000
"""The maximum number of pairs of chains that share a test. A pair counts once for each test that it shares."""


def kruskal(problem: OrderProblem) -> Order:
    """Order the chains along a path that Kruskal's method builds from the edges with the smallest savings first.

    This is what the paper specifies, although the largest savings first would seem natural. The savings of a pair are
    what evaluating the chain that was declared earlier first saves. Pairs that share no test save nothing. Parts of
    the path that no edge connects follow one another in the order of declaration.
    """
    tests = Chains.of(problem).tests()
    sharing = np.diff(problem.test_offsets)
    most = int((sharing * (sharing - 1) // 2).sum())
    if most > MOST_PAIRS:
        raise ValueError(f"{most:,} pairs of disjuncts share a test; this order supports at most {MOST_PAIRS:,}")
    costs = read_only(problem.costs[problem.test_calls])
    firsts, seconds, savings = _pairs(
        problem.disjunct_offsets,
        read_only(tests),
        problem.test_offsets,
        problem.test_disjuncts,
        problem.chances,
        costs,
        most,
    )
    sequence = _path(problem.disjuncts, firsts, seconds, np.argsort(savings, kind="stable"))
    return Order.by_disjuncts("kruskal", CHAINS, problem, sequence, tests)


@kernel
def _pairs(
    offsets: Array, tests: Array, test_offsets: Array, test_disjuncts: Array, chances: Array, costs: Array, most: int
) -> tuple[Array, Array, Array]:
    """Return all pairs of disjuncts that share a test, each once, and what evaluating the first one first saves."""
    firsts, seconds = np.empty(most, dtype=IDENTIFIER), np.empty(most, dtype=IDENTIFIER)
    savings = np.empty(most)
    count = 0
    for test in range(len(chances)):
        disjuncts = test_disjuncts[test_offsets[test] : test_offsets[test + 1]]
        for place in range(len(disjuncts)):
            one = tests[offsets[disjuncts[place]] : offsets[disjuncts[place] + 1]]
            for other_place in range(place + 1, len(disjuncts)):
                other = tests[offsets[disjuncts[other_place]] : offsets[disjuncts[other_place] + 1]]
                if _first_shared(one, other) == test:
                    firsts[count], seconds[count] = disjuncts[place], disjuncts[other_place]
                    savings[count] = saving_of(one, other, chances, costs)
                    count += 1
    return firsts[:count], seconds[:count], savings[:count]


@kernel
def _first_shared(one: Array, other: Array) -> Number:
    for test in one:
        if _holds(other, test):
            return test
    return -1


@kernel
def _holds(tests: Array, wanted: Number) -> Number:
    found = False
    for test in tests:
        found |= test == wanted
    return found


@kernel
def saving_of(one: Array, other: Array, chances: Array, costs: Array) -> Number:
    """The general case of section 4.2.4: the sum over shared tests of (1 - p)(P C' of the other - P of the other C').

    P is the chance to come to the test; C' the cost of the tests above it "without considering" the shared ones.
    Those have passed in both chains when the test is reached, so neither their cost nor their chance is part of C'.
    """
    saving, reach, apart, cost = 0.0, 1.0, 1.0, 0.0
    for test in one:
        if _holds(other, test):
            other_reach, other_apart, other_cost = 1.0, 1.0, 0.0
            for above in other:
                if above == test:
                    break
                if not _holds(one, above):
                    other_cost += other_apart * costs[above]
                    other_apart *= chances[above]
                other_reach *= chances[above]
            saving += (1.0 - chances[test]) * (reach * other_cost - other_reach * cost)
        else:
            cost += apart * costs[test]
            apart *= chances[test]
        reach *= chances[test]
    return saving


@kernel
def _path(disjuncts: int, firsts: Array, seconds: Array, edges: Array) -> Array:
    """Choose edges in order, at most two per disjunct and without cycles; then walk along them."""
    degrees = np.zeros(disjuncts, dtype=np.int64)
    parents = np.arange(disjuncts)
    beside = np.full((disjuncts, 2), -1, dtype=np.int64)
    for edge in edges:
        one, other = firsts[edge], seconds[edge]
        if degrees[one] < 2 and degrees[other] < 2:
            root, other_root = _root(parents, one), _root(parents, other)
            if root != other_root:
                parents[root] = other_root
                beside[one, degrees[one]] = other
                beside[other, degrees[other]] = one
                degrees[one] += 1
                degrees[other] += 1
    sequence = np.empty(disjuncts, dtype=np.int64)
    seen = np.zeros(disjuncts, dtype=np.bool_)
    count = 0
    for end in range(disjuncts):
        disjunct = end if degrees[end] < 2 and not seen[end] else -1
        while disjunct >= 0:
            seen[disjunct] = True
            sequence[count] = disjunct
            count += 1
            following = -1
            for side in range(degrees[disjunct]):
                if not seen[beside[disjunct, side]]:
                    following = beside[disjunct, side]
            disjunct = following
    return sequence


@kernel
def _root(parents: Array, disjunct: Number) -> Number:
    while parents[disjunct] != disjunct:
        parents[disjunct] = parents[parents[disjunct]]
        disjunct = parents[disjunct]
    return disjunct
