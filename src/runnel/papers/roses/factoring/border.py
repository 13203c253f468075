"""VCA with the Very Clever Border (RoSeS §5, algorithm 1): a filter plan in one pass over the candidates.

For every node of the border, the paper keeps the candidates by selectivity and updates them as the border changes. A
single pass over the sorted candidates gives the same result, for two reasons. First, a node enters the border only in
place of nodes that it subsumes. The number of border nodes that a candidate subsumes therefore never grows, and a
candidate without benefit never gets one later. Second, the candidates of a node that enters are candidates of the
nodes that it replaces, and no more selective than the node itself, so they come later in the pass.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.papers.roses.factoring.filter_nodes import ABSENT, SOURCE, Nodes, closed_mask


def grow_border(nodes: Nodes) -> Array:
    """Return the parent of every node after VCA has processed the candidates, the most selective first."""
    count = len(nodes.rates)
    parents = np.full(count, ABSENT, dtype=np.int64)
    parents[: nodes.predicates] = SOURCE  # line 2: each predicate by itself; they are the border
    tops = np.arange(nodes.predicates, dtype=np.int64)
    open_masks = np.full(nodes.predicates, ~np.uint64(0), dtype=np.uint64)
    links = np.full((2, count), SOURCE, dtype=np.int64)
    _grow(nodes, parents, tops, open_masks, links, np.zeros(count, np.int64), np.full(count, -1, np.int64))
    return parents


@kernel
def _grow(
    nodes: Nodes, parents: Array, tops: Array, open_masks: Array, links: Array, degrees: Array, stamps: Array
) -> None:
    """Process all candidates.

    `tops` is the border node above each predicate. `open_masks` are the elements of the predicate that a candidate
    may consist of to subsume that node.
    """
    for candidate in range(len(nodes.nodes)):
        node = nodes.nodes[candidate]
        inserted = node >= nodes.predicates
        if not inserted and parents[node] != SOURCE:
            continue
        subsumed = _subsumed(nodes, candidate, parents, tops, open_masks, stamps)
        rate = nodes.rates[node]
        # Line 11, with the true gain if the candidate is already in the border and costs no new evaluation.
        gain = (subsumed - 1) - subsumed * rate if inserted else (subsumed - 1) * (1.0 - rate)
        if subsumed < 2 or gain <= 0.0:
            continue
        if inserted:
            parents[node] = SOURCE
        for entry in range(nodes.offsets[candidate], nodes.offsets[candidate + 1]):
            predicate = nodes.members[entry]
            top = tops[predicate]
            if stamps[top] == candidate and not nodes.masks[entry] & ~open_masks[predicate]:
                if top != node and parents[top] == SOURCE:
                    _attach(nodes, top, node, parents, links, degrees)
                tops[predicate] = node
                open_masks[predicate] = closed_mask(nodes, entry)


@kernel
def _subsumed(nodes: Nodes, candidate: int, parents: Array, tops: Array, open_masks: Array, stamps: Array) -> int:
    """Count the border nodes that a candidate subsumes, itself included (line 10), and stamp each of them."""
    count = 0
    for entry in range(nodes.offsets[candidate], nodes.offsets[candidate + 1]):
        predicate = nodes.members[entry]
        top = tops[predicate]
        if parents[top] == SOURCE and not nodes.masks[entry] & ~open_masks[predicate]:
            count += stamps[top] != candidate
            stamps[top] = candidate
    return count


@kernel
def _attach(nodes: Nodes, top: int, node: int, parents: Array, links: Array, degrees: Array) -> None:
    """Attach a border node to a new parent (line 18), or replace it by its children (lines 19-25, reduction).

    A filter is reduced if it saves nothing below the new parent. The paper leaves it in the plan without children;
    this function removes it.
    """
    children = degrees[top]
    rate = nodes.rates[node]
    if top >= nodes.predicates and (children - 1) * rate - children * nodes.rates[top] < 0.0:
        child = links[0, top]
        while child != SOURCE:
            after = links[1, child]
            _link(child, node, parents, links, degrees)
            child = after
        parents[top] = ABSENT
    else:
        _link(top, node, parents, links, degrees)


@kernel
def _link(child: int, node: int, parents: Array, links: Array, degrees: Array) -> None:
    """Make a node the first child of another; `links` are first children and next siblings."""
    parents[child] = node
    links[1, child] = links[0, node]
    links[0, node] = child
    degrees[node] += 1
