"""Build a filter tree from the parents of its nodes. Nodes are numbered from the source down."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.kernel import kernel
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree, node_depths
from runnel.papers.roses.factoring.filters import Filters


def assemble_tree(parents: Array, sets: Rows, predicates: Rows, filters: Filters, rates: Array) -> FilterTree:
    """Build the tree of nodes with these parents. A negative parent is the source.

    `sets` are the clauses of every node, `predicates` the predicates that it decides, `rates` the selectivities.
    """
    order = np.argsort(node_depths(parents), kind="stable")
    numbers = np.empty(len(parents), dtype=np.int64)
    numbers[order] = np.arange(1, len(order) + 1)
    above = np.full(len(order) + 1, -1, dtype=np.int64)
    below = parents[order]
    above[1:] = np.where(below < 0, ROOT, numbers[below])
    _, clauses = sets.expand(order)
    offsets = np.concatenate([[0], offsets_of(sets.lengths[order])])
    is_new = np.ones(len(clauses), dtype=bool)
    _drop_repeated(above, offsets, clauses, is_new)
    return FilterTree(
        parents=above.astype(np.int32),
        clauses=_order_clauses(offsets, clauses, is_new, filters.selectivities),
        predicates=_with_root(predicates, order),
        selectivities=np.concatenate([[1.0], rates[order]]),
    )


@kernel
def _drop_repeated(parents: Array, offsets: Array, clauses: Array, is_new: Array) -> None:
    """Mark the clauses of a node that an ancestor evaluates as not new."""
    for node in range(1, len(parents)):
        for index in range(offsets[node], offsets[node + 1]):
            above = parents[node]
            while above > 0 and is_new[index]:
                for other in range(offsets[above], offsets[above + 1]):
                    if clauses[other] == clauses[index]:
                        is_new[index] = False
                above = parents[above]


def _order_clauses(offsets: Array, clauses: Array, is_new: Array, selectivities: Array) -> Rows:
    """Return the new clauses of each node, the most selective first."""
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[is_new]
    own_clauses = clauses[is_new]
    order = np.lexsort((own_clauses, selectivities[own_clauses], owners))
    return Rows(offsets_of(np.bincount(owners, minlength=len(offsets) - 1)), own_clauses[order].astype(np.int32))


def _with_root(predicates: Rows, order: Array) -> Rows:
    """Return the predicates of the source (the last row), followed by those of the nodes in their new order."""
    last = len(predicates) - 1
    rows = np.concatenate([[last], order])
    _, values = predicates.expand(rows)
    return Rows(offsets_of(predicates.lengths[rows]), values.astype(np.int32))
