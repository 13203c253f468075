"""Linked chains as arrays, and the loops over them (section 4.2.1): link, unlink, score, merge.

A node is a test in a way's chain. The nodes of one test are linked, so who shares it is found without searching.
A node keeps the probability P that the chain comes to it and the cost C of coming there; a test keeps the sums of
both over its nodes. They are kept in whole numbers, so that what was added can be taken away again without a trace.
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
    """The chains. Arrays over tests, nodes and ways have room for more."""

    chances: Array
    costs: Array
    wishes: Array
    """Tests come first that cost least for a unit of the probability to fail."""
    reach_sums: Array
    cost_sums: Array
    heads: Array
    is_changed: Array
    node_tests: Array
    node_ways: Array
    node_reaches: Array
    node_costs: Array
    node_next: Array
    node_before: Array
    starts: Array
    lengths: Array
    scores: Array
    is_stale: Array
    """Whether the score is not that of the sums as they are."""
    is_new: Array
    """Whether the way has no place in the order yet."""


@step
def _link(links: ChainLinks, way: Number, start: Number, tests: Array) -> None:
    """Make the chain of a way, its nodes from `start` on."""
    links.starts[way] = start
    links.lengths[way] = len(tests)
    reach, cost = 1.0, 0.0
    for test in sorted_chain(links.wishes, tests):
        node = start
        links.node_tests[node] = test
        links.node_ways[node] = way
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
def link_all(links: ChainLinks, ways: Array, offsets: Array, tests: Array, first: Number) -> None:
    """Make the chains of several ways, their nodes one after another from `first` on."""
    for number in range(len(ways)):
        start, stop = offsets[number], offsets[number + 1]
        _link(links, ways[number], first + start, tests[start:stop])


@kernel
def unlink(links: ChainLinks, way: Number) -> None:
    """Take a way's nodes out of all links."""
    for node in range(links.starts[way], links.starts[way] + links.lengths[way]):
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
    links.lengths[way] = NOTHING


@step
def _score(links: ChainLinks, way: Number) -> Number:
    """What evaluating this chain first saves, against evaluating the chains linked to it first.

    The sum of section 4.2.4 over all other chains at once: they come in by the sums of their P and C, and the
    chain's own part of those sums cancels.
    """
    total = 0.0
    for node in range(links.starts[way], links.starts[way] + links.lengths[way]):
        test = links.node_tests[node]
        reach, cost = links.node_reaches[node] / ONE, links.node_costs[node] / ONE
        saved = reach * (links.cost_sums[test] / ONE) - cost * (links.reach_sums[test] / ONE)
        total += (1.0 - links.chances[test]) * saved
    return total


@kernel
def score_all(links: ChainLinks, ways: Array) -> None:
    """Score these ways."""
    for way in ways:
        links.scores[way] = _score(links, way)


@kernel
def find_stale(links: ChainLinks, tests: Array, found: Array) -> int:
    """The ways that share one of these tests, each once, in `found`; gives how many. They are marked as stale."""
    count = 0
    for test in tests:
        links.is_changed[test] = False
        node = links.heads[test]
        while node != NOTHING:
            way = links.node_ways[node]
            if not links.is_stale[way]:
                links.is_stale[way] = True
                found[count] = way
                count += 1
            node = links.node_next[node]
    return count


@kernel
def find_places(scores: Array, sequence: Array, ways: Array) -> Array:
    """Where each of some ways stands in a sequence that is in order, or would stand."""
    places = np.empty(len(ways), dtype=np.int64)
    for number in range(len(ways)):
        low, high = 0, len(sequence)
        while low < high:
            middle = (low + high) >> 1
            if _precedes(scores, sequence[middle], ways[number]):
                low = middle + 1
            else:
                high = middle
        places[number] = low
    return places


@step
def _precedes(scores: Array, one: Number, other: Number) -> Number:
    return scores[one] > scores[other] or (scores[one] == scores[other] and one < other)
