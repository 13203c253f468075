"""The cost model (RoSeS §4.2, table 1): output rate, memory and processing cost of an operator, by its input rate.

Rates are items per unit of time. Filtering an item costs one unit, whatever the item.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runnel.papers.roses.factoring.filter_tree import FilterTree


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """The rate of an operator's output, the memory it holds and its processing cost."""

    rate: float
    memory: float = 0.0
    processing: float = 0.0


def filter_cost(rate: float, selectivity: float) -> OperatorCost:
    """Return the cost of a filter. It reads one item at a time and passes a fraction of them.

    >>> filter_cost(100.0, 0.1)
    OperatorCost(rate=10.0, memory=1.0, processing=100.0)
    """
    return OperatorCost(selectivity * rate, 1.0, rate)


def union_cost(rates: Iterable[float]) -> OperatorCost:
    """Return the cost of a union. It forwards its input at no cost of its own."""
    return OperatorCost(sum(rates))


def join_cost(rate: float, selectivity: float, window: float) -> OperatorCost:
    """Return the cost of a join. It compares each item of the primary stream with the whole window."""
    return OperatorCost(selectivity * rate, 1.0, rate * window)


def window_cost(rate: float, *, items: float | None = None, duration: float | None = None) -> OperatorCost:
    """Return the cost of a window that holds a number of items, or the items of a duration. It outputs no stream.

    >>> window_cost(2.0, duration=30.0).memory
    60.0
    """
    size = items if items is not None else rate * (duration or 0.0)
    return OperatorCost(0.0, size, 1.0)


def tree_cost(tree: FilterTree, rate: float = 1.0) -> OperatorCost:
    """Return the cost of all filters of a tree over a source of this rate. The output is the matches.

    >>> import numpy as np
    >>> from runnel.arrays import Rows
    >>> shared = FilterTree(
    ...     np.array([-1, 0, 1]), Rows.of([[], [0], [1]]), Rows.of([[], [], [3]]), np.array([1.0, 0.5, 0.1])
    ... )
    >>> tree_cost(shared, rate=100.0)
    OperatorCost(rate=10.0, memory=2.0, processing=150.0)
    """
    filters = [filter_cost(rate * float(tree.selectivities[parent]), 1.0) for parent in tree.parents[1:].tolist()]
    ends = union_cost((tree.selectivities * tree.predicates.lengths * rate).tolist())
    return OperatorCost(ends.rate, sum(cost.memory for cost in filters), sum(cost.processing for cost in filters))


def benefit(children: int, parent_rate: float, rate: float, *, inserted: bool = True) -> float:
    """Return the saving of a filter that becomes the parent of `children` filters of its own parent (RoSeS §5).

    `parent_rate` and `rate` are the selectivities of the parent and of the filter. A filter that is already in the
    plan, as a sibling of its new children, costs no new evaluation. It counts as one of the k children, and its
    saving is (k - 1)(parent_rate - rate), which is more than the paper's formula gives.

    >>> benefit(3, 1.0, 0.5), benefit(3, 1.0, 0.5, inserted=False)
    (0.5, 1.0)
    """
    if inserted:
        return (children - 1) * parent_rate - children * rate
    return (children - 1) * (parent_rate - rate)
