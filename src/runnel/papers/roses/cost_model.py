"""The cost model (RoSeS §4.2, table 1): what an operator gives, holds and costs, by the rate of what it reads.

Rates are items in a unit of time. Filtering an item costs one unit, whatever the item.
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
    """A filter reads one item at a time and lets a part of them through.

    >>> filter_cost(100.0, 0.1)
    OperatorCost(rate=10.0, memory=1.0, processing=100.0)
    """
    return OperatorCost(selectivity * rate, 1.0, rate)


def union_cost(rates: Iterable[float]) -> OperatorCost:
    """A union hands on what it reads, at no cost of its own."""
    return OperatorCost(sum(rates))


def join_cost(rate: float, selectivity: float, window: float) -> OperatorCost:
    """A join compares each item of the primary stream with the whole window."""
    return OperatorCost(selectivity * rate, 1.0, rate * window)


def window_cost(rate: float, *, items: float | None = None, duration: float | None = None) -> OperatorCost:
    """A window holds so many items, or those of so long a time; it gives no stream but a buffer.

    >>> window_cost(2.0, duration=30.0).memory
    60.0
    """
    size = items if items is not None else rate * (duration or 0.0)
    return OperatorCost(0.0, size, 1.0)


def tree_cost(tree: FilterTree, rate: float = 1.0) -> OperatorCost:
    """All filters of a tree over a source of this rate; the output is what reaches the predicates.

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
    return OperatorCost(ends.rate, sum(one.memory for one in filters), sum(one.processing for one in filters))


def benefit(children: int, above: float, here: float, *, inserted: bool = True) -> float:
    """What a filter saves that takes `children` filters from the one above it (RoSeS §5).

    `above` and `here` are selectivities. A filter that is in the plan already, beside the children that it takes (it
    counts among them), costs no new evaluation: the gain is then (k - 1)(above - here), above the paper's formula.

    >>> benefit(3, 1.0, 0.5), benefit(3, 1.0, 0.5, inserted=False)
    (0.5, 1.0)
    """
    if inserted:
        return (children - 1) * above - children * here
    return (children - 1) * (above - here)
