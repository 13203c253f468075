"""Linked chains as arrays, and the loops over them (section 4.2.1): link, unlink, score, merge.

A node is a test in a disjunct's chain. The nodes of one test are linked, so the disjuncts that share it are found
without a search. A node has the probability P that the chain reaches it and the cost C of reaching it; a test has
the sums of both over its nodes. They are stored as integers, so that subtraction exactly undoes an addition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step

NOTHING = -1
ONE = float(1 << 31)
"""The integer that represents a probability of 1 or one unit of cost."""


class ChainLinks(NamedTuple):
    """The chains. The arrays over tests, nodes and disjuncts have spare capacity."""

    chances: Array
    costs: Array
    priorities: Array
    """The cost of each test divided by its probability to fail. Tests with lower values come first."""
    reach_sums: Array
    cost_sums: Array
    heads: Array
    is_changed: Array
    node_tests: Array
    node_disjuncts: Array
    node_reaches: Array
    node_costs: Array
    node_next: Array
    node_before: Array
    starts: Array
    lengths: Array
    scores: Array
    is_stale: Array
    """Whether the sums have changed since the disjunct was scored."""
    is_new: Array
    """Whether the disjunct is not in the order yet."""


@step
def _link(links: ChainLinks, disjunct: Number, start: Number, tests: Array) -> None:
    """Build the chain of a disjunct. Its nodes are numbered from `start`."""
    links.starts[disjunct] = start
    links.lengths[disjunct] = len(tests)
    reach, cost = 1.0, 0.0
    for test in sorted_chain(links.priorities, tests):
        node = start
        links.node_tests[node] = test
        links.node_disjuncts[node] = disjunct
        links.node_reaches[node] = int(reach * ONE)
        links.node_costs[node] = int(cost * ONE)
        _link_node(links, node, test)
        cost += reach * links.costs[test]
        reach *= links.chances[test]
        start += 1


@kernel
def sorted_chain(priorities: Array, tests: Array) -> Array:
    """Sort tests by priority, then by number, so that links never cross (section 4.2.4)."""
    chain = tests.copy()
    for index in range(1, len(chain)):
        test = chain[index]
        left = index - 1
        while left >= 0 and (
            priorities[chain[left]] > priorities[test]
            or (priorities[chain[left]] == priorities[test] and chain[left] > test)
        ):
            chain[left + 1] = chain[left]
            left -= 1
        chain[left + 1] = test
    return chain


@step
def _link_node(links: ChainLinks, node: Number, test: Number) -> None:
    first = links.heads[test]
    links.node_before[node] = NOTHING
    links.node_next[node] = first
    if first != NOTHING:
        links.node_before[first] = node
    links.heads[test] = node
    links.reach_sums[test] += links.node_reaches[node]
    links.cost_sums[test] += links.node_costs[node]


@kernel
def link_all(links: ChainLinks, disjuncts: Array, offsets: Array, tests: Array, first: Number) -> None:
    """Build the chains of several disjuncts. Their nodes are numbered consecutively from `first`."""
    for number in range(len(disjuncts)):
        start, stop = offsets[number], offsets[number + 1]
        _link(links, disjuncts[number], first + start, tests[start:stop])


@kernel
def unlink(links: ChainLinks, disjunct: Number) -> None:
    """Remove a disjunct's nodes from all links."""
    for node in range(links.starts[disjunct], links.starts[disjunct] + links.lengths[disjunct]):
        test = links.node_tests[node]
        before, after = links.node_before[node], links.node_next[node]
        if before == NOTHING:
            links.heads[test] = after
        else:
            links.node_next[before] = after
        if after != NOTHING:
            links.node_before[after] = before
        links.reach_sums[test] -= links.node_reaches[node]
        links.cost_sums[test] -= links.node_costs[node]
    links.lengths[disjunct] = NOTHING


@step
def _score(links: ChainLinks, disjunct: Number) -> Number:
    """Return the saving of evaluating this chain before, instead of after, all chains that are linked to it.

    This is the sum of section 4.2.4 over all other chains at once. It uses the sums of their P and C; the chain's own
    part of those sums cancels.
    """
    total = 0.0
    for node in range(links.starts[disjunct], links.starts[disjunct] + links.lengths[disjunct]):
        test = links.node_tests[node]
        reach, cost = links.node_reaches[node] / ONE, links.node_costs[node] / ONE
        saved = reach * (links.cost_sums[test] / ONE) - cost * (links.reach_sums[test] / ONE)
        total += (1.0 - links.chances[test]) * saved
    return total


@kernel
def score_all(links: ChainLinks, disjuncts: Array) -> None:
    """Score these disjuncts."""
    for disjunct in disjuncts:
        links.scores[disjunct] = _score(links, disjunct)


@kernel
def find_stale(links: ChainLinks, tests: Array, stale: Array) -> int:
    """Write the disjuncts that share one of these tests to `stale`, mark them as stale, and return their number."""
    count = 0
    for test in tests:
        links.is_changed[test] = False
        node = links.heads[test]
        while node != NOTHING:
            disjunct = links.node_disjuncts[node]
            if not links.is_stale[disjunct]:
                links.is_stale[disjunct] = True
                stale[count] = disjunct
                count += 1
            node = links.node_next[node]
    return count


@kernel
def find_positions(scores: Array, sequence: Array, disjuncts: Array) -> Array:
    """Return the position of each disjunct in an ordered sequence, or the position at which to insert it."""
    positions = np.empty(len(disjuncts), dtype=np.int64)
    for number in range(len(disjuncts)):
        low, high = 0, len(sequence)
        while low < high:
            middle = (low + high) >> 1
            if _precedes(scores, sequence[middle], disjuncts[number]):
                low = middle + 1
            else:
                high = middle
        positions[number] = low
    return positions


@step
def _precedes(scores: Array, first: Number, second: Number) -> Number:
    return scores[first] > scores[second] or (scores[first] == scores[second] and first < second)
