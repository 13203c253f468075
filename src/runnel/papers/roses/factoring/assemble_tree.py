"""From the parents of nodes to a filter tree: nodes that are in the plan, numbered from the source down."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.kernel import kernel
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree, node_depths
from runnel.papers.roses.factoring.filters import Filters


def assemble_tree(parents: Array, sets: Rows, predicates: Rows, filters: Filters, rates: Array) -> FilterTree:
    """The tree of nodes whose parents are nodes or, below zero, the source.

    `sets` are the clauses of every node, `predicates` the predicates that each decides, `rates` their selectivities.
    """
    order = np.argsort(node_depths(parents), kind="stable")
    numbers = np.empty(len(parents), dtype=np.int64)
    numbers[order] = np.arange(1, len(order) + 1)
    above = np.full(len(order) + 1, -1, dtype=np.int64)
    below = parents[order]
    above[1:] = np.where(below < 0, ROOT, numbers[below])
    _, clauses = sets.expand(order)
    offsets = np.concatenate([[0], offsets_of(sets.lengths[order])])
    new = np.ones(len(clauses), dtype=bool)
    _drop_asked(above, offsets, clauses, new)
    return FilterTree(
        parents=above.astype(np.int32),
        clauses=_asked(offsets, clauses, new, filters.selectivities),
        predicates=_with_root(predicates, order),
        selectivities=np.concatenate([[1.0], rates[order]]),
    )


@kernel
def _drop_asked(parents: Array, offsets: Array, clauses: Array, new: Array) -> None:
    """Clauses that a node above has asked already are not asked again."""
    for node in range(1, len(parents)):
        for place in range(offsets[node], offsets[node + 1]):
            above = parents[node]
            while above > 0 and new[place]:
                for other in range(offsets[above], offsets[above + 1]):
                    if clauses[other] == clauses[place]:
                        new[place] = False
                above = parents[above]


def _asked(offsets: Array, clauses: Array, new: Array, selectivities: Array) -> Rows:
    """The clauses that a node asks, those first that the fewest items satisfy."""
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[new]
    asked = clauses[new]
    order = np.lexsort((asked, selectivities[asked], owners))
    return Rows(offsets_of(np.bincount(owners, minlength=len(offsets) - 1)), asked[order].astype(np.int32))


def _with_root(predicates: Rows, order: Array) -> Rows:
    """The predicates of the source (those without clauses, in the last row) and of the nodes in their new order."""
    last = len(predicates) - 1
    rows = np.concatenate([[last], order])
    _, values = predicates.expand(rows)
    return Rows(offsets_of(predicates.lengths[rows]), values.astype(np.int32))
