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

MAX_PAIRS = 30_000_000
"""The maximum number of pairs of chains that share a test. A pair counts once for each test that it shares."""


def kruskal(problem: OrderProblem) -> Order:
    """Order the chains along a path that Kruskal's method builds from the edges with the smallest savings first.

    This is what the paper specifies, although the largest savings first would seem natural. The savings of a pair are
    what evaluating the chain that was declared earlier first saves. Pairs that share no test save nothing. Parts of
    the path that no edge connects follow one another in the order of declaration.
    """
    tests = Chains.of(problem).tests()
    sharing = np.diff(problem.test_offsets)
    pairs = int((sharing * (sharing - 1) // 2).sum())
    if pairs > MAX_PAIRS:
        raise ValueError(f"{pairs:,} pairs of disjuncts share a test; this order supports at most {MAX_PAIRS:,}")
    costs = read_only(problem.costs[problem.test_calls])
    firsts, seconds, savings = _pairs(
        problem.disjunct_offsets,
        read_only(tests),
        problem.test_offsets,
        problem.test_disjuncts,
        problem.chances,
        costs,
        pairs,
    )
    sequence = _path(problem.disjuncts, firsts, seconds, np.argsort(savings, kind="stable"))
    return Order.by_disjuncts("kruskal", CHAINS, problem, sequence, tests)


@kernel
def _pairs(
    offsets: Array,
    tests: Array,
    test_offsets: Array,
    test_disjuncts: Array,
    chances: Array,
    costs: Array,
    capacity: int,
) -> tuple[Array, Array, Array]:
    """Return all pairs of disjuncts that share a test, each once, and what evaluating the first one first saves."""
    firsts, seconds = np.empty(capacity, dtype=IDENTIFIER), np.empty(capacity, dtype=IDENTIFIER)
    savings = np.empty(capacity)
    count = 0
    for test in range(len(chances)):
        disjuncts = test_disjuncts[test_offsets[test] : test_offsets[test + 1]]
        for index in range(len(disjuncts)):
            chain = tests[offsets[disjuncts[index]] : offsets[disjuncts[index] + 1]]
            for other_index in range(index + 1, len(disjuncts)):
                other_chain = tests[offsets[disjuncts[other_index]] : offsets[disjuncts[other_index] + 1]]
                if _first_shared(chain, other_chain) == test:
                    firsts[count], seconds[count] = disjuncts[index], disjuncts[other_index]
                    savings[count] = saving_of(chain, other_chain, chances, costs)
                    count += 1
    return firsts[:count], seconds[:count], savings[:count]


@kernel
def _first_shared(chain: Array, other_chain: Array) -> Number:
    for test in chain:
        if _contains(other_chain, test):
            return test
    return -1


@kernel
def _contains(tests: Array, wanted: Number) -> Number:
    is_member = False
    for test in tests:
        is_member |= test == wanted
    return is_member


@kernel
def saving_of(chain: Array, other_chain: Array, chances: Array, costs: Array) -> Number:
    """Return what evaluating `chain` before `other_chain` saves (section 4.2.4, general case).

    It is the sum over shared tests of (1 - p)(P C'' - P'' C'). P and P'' are the probabilities that the chain and the
    other chain reach the test. C' and C'' are the costs of the tests above it "without considering" the shared ones.
    Shared tests have passed in both chains when the test is reached, so C' contains neither their cost nor their
    probability.
    """
    saving, reach, unshared_reach, unshared_cost = 0.0, 1.0, 1.0, 0.0
    for test in chain:
        if _contains(other_chain, test):
            other_reach, other_unshared_reach, other_unshared_cost = 1.0, 1.0, 0.0
            for other_test in other_chain:
                if other_test == test:
                    break
                if not _contains(chain, other_test):
                    other_unshared_cost += other_unshared_reach * costs[other_test]
                    other_unshared_reach *= chances[other_test]
                other_reach *= chances[other_test]
            saving += (1.0 - chances[test]) * (reach * other_unshared_cost - other_reach * unshared_cost)
        else:
            unshared_cost += unshared_reach * costs[test]
            unshared_reach *= chances[test]
        reach *= chances[test]
    return saving


@kernel
def _path(disjuncts: int, firsts: Array, seconds: Array, edges: Array) -> Array:
    """Choose edges in order, at most two per disjunct and without cycles; then walk along them."""
    degrees = np.zeros(disjuncts, dtype=np.int64)
    parents = np.arange(disjuncts)
    neighbors = np.full((disjuncts, 2), -1, dtype=np.int64)
    for edge in edges:
        first, second = firsts[edge], seconds[edge]
        if degrees[first] < 2 and degrees[second] < 2:
            root, other_root = _root(parents, first), _root(parents, second)
            if root != other_root:
                parents[root] = other_root
                neighbors[first, degrees[first]] = second
                neighbors[second, degrees[second]] = first
                degrees[first] += 1
                degrees[second] += 1
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
                if not seen[neighbors[disjunct, side]]:
                    following = neighbors[disjunct, side]
            disjunct = following
    return sequence


@kernel
def _root(parents: Array, disjunct: Number) -> Number:
    while parents[disjunct] != disjunct:
        parents[disjunct] = parents[parents[disjunct]]
        disjunct = parents[disjunct]
    return disjunct
