"""Linked chains as arrays, and the loops over them (section 4.2.1): link, unlink, score, merge.

A node is a test in a disjunct's chain. The nodes of one test are linked, so the disjuncts that share it are found
without searching. A node has the probability P that the chain reaches it and the cost C of reaching it; a test has
the sums of both over its nodes. They are stored as integers, so that subtraction exactly undoes an addition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step

NOTHING = -1
ONE = float(1 << 31)
"""What a probability of 1, and the unit of cost, are as whole numbers."""


class ChainLinks(NamedTuple):
    """The chains. Arrays over tests, nodes and disjuncts have room for more."""

    chances: Array
    costs: Array
    wishes: Array
    """Tests come first that cost least for a unit of the probability to fail."""
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
    """Whether the score is not that of the current sums."""
    is_new: Array
    """Whether the disjunct is not in the order yet."""


@step
def _link(links: ChainLinks, disjunct: Number, start: Number, tests: Array) -> None:
    """Build the chain of a disjunct. Its nodes are numbered from `start`."""
    links.starts[disjunct] = start
    links.lengths[disjunct] = len(tests)
    reach, cost = 1.0, 0.0
    for test in sorted_chain(links.wishes, tests):
        node = start
        links.node_tests[node] = test
        links.node_disjuncts[node] = disjunct
        links.node_reaches[node] = int(reach * ONE)
        links.node_costs[node] = int(cost * ONE)
        _hang(links, node, test)
        cost += reach * links.costs[test]
        reach *= links.chances[test]
        start += 1


@kernel
def sorted_chain(wishes: Array, tests: Array) -> Array:
    """Tests by their wish, the smaller number first where that is equal: so links never cross (section 4.2.4)."""
    chain = tests.copy()
    for place in range(1, len(chain)):
        test = chain[place]
        before = place - 1
        while before >= 0 and (
            wishes[chain[before]] > wishes[test] or (wishes[chain[before]] == wishes[test] and chain[before] > test)
        ):
            chain[before + 1] = chain[before]
            before -= 1
        chain[before + 1] = test
    return chain


@step
def _hang(links: ChainLinks, node: Number, test: Number) -> None:
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
    """What evaluating this chain first saves, against evaluating the chains linked to it first.

    The sum of section 4.2.4 over all other chains at once: they come in by the sums of their P and C, and the
    chain's own part of those sums cancels.
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
def find_stale(links: ChainLinks, tests: Array, found: Array) -> int:
    """Write the disjuncts that share one of these tests to `found`, mark them as stale, and return their number."""
    count = 0
    for test in tests:
        links.is_changed[test] = False
        node = links.heads[test]
        while node != NOTHING:
            disjunct = links.node_disjuncts[node]
            if not links.is_stale[disjunct]:
                links.is_stale[disjunct] = True
                found[count] = disjunct
                count += 1
            node = links.node_next[node]
    return count


@kernel
def find_places(scores: Array, sequence: Array, disjuncts: Array) -> Array:
    """Return the position of each disjunct in an ordered sequence, or the position at which to insert it."""
    places = np.empty(len(disjuncts), dtype=np.int64)
    for number in range(len(disjuncts)):
        low, high = 0, len(sequence)
        while low < high:
            middle = (low + high) >> 1
            if _precedes(scores, sequence[middle], disjuncts[number]):
                low = middle + 1
            else:
                high = middle
        places[number] = low
    return places


@step
def _precedes(scores: Array, one: Number, other: Number) -> Number:
    return scores[one] > scores[other] or (scores[one] == scores[other] and one < other)
