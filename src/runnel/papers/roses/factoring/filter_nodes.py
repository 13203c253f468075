"""The nodes of a filter tree under construction: predicates and candidates, in arrays that kernels share.

Node `p` is the predicate p. Node `predicates + c` is the candidate c, unless a predicate equals the candidate; then
the predicate is its node. A node's parent is a node, SOURCE, or ABSENT if the candidate is not in the plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.papers.roses.factoring.candidates import NO_PREDICATE, Candidates

SOURCE, ABSENT = -1, -2


class Nodes(NamedTuple):
    """The arrays. `offsets` has the entries of a candidate, `listed` those of a predicate, ascending by selectivity.

    `nodes` is the node of every candidate. `candidates` is the candidate that a predicate equals, or -1.
    """

    predicates: int
    rates: Array
    nodes: Array
    candidates: Array
    offsets: Array
    members: Array
    masks: Array
    candidate_of: Array
    listed_offsets: Array
    listed: Array
    element_offsets: Array
    closures: Array


def number_nodes(candidates: Candidates) -> Nodes:
    """Number the predicates and candidates as nodes."""
    count = len(candidates.predicate_selectivities)
    owned = np.flatnonzero(candidates.owners != NO_PREDICATE)
    nodes = count + np.arange(len(candidates))
    nodes[owned] = candidates.owners[owned]
    equal_candidates = np.full(count, -1, dtype=np.int64)
    equal_candidates[candidates.owners[owned]] = owned
    return Nodes(
        predicates=count,
        rates=np.concatenate([candidates.predicate_selectivities, candidates.selectivities]),
        nodes=nodes,
        candidates=equal_candidates,
        offsets=candidates.members.offsets,
        members=candidates.members.values,
        masks=candidates.masks,
        candidate_of=candidates.candidate_of,
        listed_offsets=candidates.listed.offsets,
        listed=candidates.listed.values,
        element_offsets=candidates.elements.rows.offsets,
        closures=candidates.elements.closures,
    )


@kernel
def closed_mask(nodes: Nodes, entry: int) -> np.uint64:
    """Return an entry's mask, extended by the elements of its predicate that the elements in the mask imply."""
    mask, element = nodes.masks[entry], nodes.element_offsets[nodes.members[entry]]
    closed = np.uint64(0)
    while mask:
        if mask & np.uint64(1):
            closed |= nodes.closures[element]
        mask >>= np.uint64(1)
        element += 1
    return closed


@kernel
def plan_cost(nodes: Nodes, parents: Array) -> float:
    """Return the filter evaluations per item. A node is evaluated on the items that pass its parent (table 1)."""
    cost = 0.0
    for parent in parents:
        if parent == SOURCE:
            cost += 1.0
        elif parent != ABSENT:
            cost += nodes.rates[parent]
    return cost
