"""Filters in the making: predicates and candidates as nodes, in arrays that kernels share.

Node `p` is the predicate p; node `predicates + c` is the candidate c, unless a predicate equals the candidate and is
its node. A node's parent is a node, SOURCE, or ABSENT where a candidate is not in the plan.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.papers.roses.factoring.candidates import NO_PREDICATE, Candidates

SOURCE, ABSENT = -1, -2


class Nodes(NamedTuple):
    """The arrays. Entries of a candidate are `offsets`; those of a predicate are `listed`, ascending by selectivity.

    `nodes` is the node of every candidate and `candidates` the candidate of every predicate that equals one (-1:
    none).
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


def number_nodes(found: Candidates) -> Nodes:
    """Number the predicates and candidates as nodes."""
    count = len(found.predicate_selectivities)
    owned = np.flatnonzero(found.owners != NO_PREDICATE)
    nodes = count + np.arange(len(found))
    nodes[owned] = found.owners[owned]
    candidates = np.full(count, -1, dtype=np.int64)
    candidates[found.owners[owned]] = owned
    return Nodes(
        predicates=count,
        rates=np.concatenate([found.predicate_selectivities, found.selectivities]),
        nodes=nodes,
        candidates=candidates,
        offsets=found.members.offsets,
        members=found.members.values,
        masks=found.masks,
        candidate_of=found.candidate_of,
        listed_offsets=found.listed.offsets,
        listed=found.listed.values,
        element_offsets=found.elements.rows.offsets,
        closures=found.elements.closures,
    )


@kernel
def closed_mask(nodes: Nodes, entry: int) -> np.uint64:
    """Return an entry's mask, extended by the elements of its predicate that the elements in the mask imply."""
    mask, place = nodes.masks[entry], nodes.element_offsets[nodes.members[entry]]
    closed = np.uint64(0)
    while mask:
        if mask & np.uint64(1):
            closed |= nodes.closures[place]
        mask >>= np.uint64(1)
        place += 1
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
