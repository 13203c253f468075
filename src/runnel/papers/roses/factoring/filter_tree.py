"""Filter trees: the result of factoring, which matchers and `explain` read.

A node is a filter on the items that passed its parent. Node 0 is the source, which all items pass. The number of a
node is greater than its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.arrays import Array, Arrays, Rows
from runnel.kernel import kernel

ROOT = 0


@dataclass(frozen=True)
class FilterTree:
    """The arrays of a tree.

    `clauses` are the clauses that a node adds to those of the nodes above it, in the order of evaluation.
    `predicates` are the predicates that hold for the items that pass a node. `selectivities` is the share of all
    items expected to pass. The tree is immutable.
    """

    parents: Array
    clauses: Rows
    predicates: Rows
    selectivities: Array

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def cost(self) -> float:
        """The expected filter evaluations per item (RoSeS table 1: a filter costs the rate of its input)."""
        return float(self.selectivities[self.parents[1:]].sum())

    @cached_property
    def unfactored_cost(self) -> float:
        """The filter evaluations per item if every distinct predicate is evaluated separately."""
        return float(np.count_nonzero(self.predicates.lengths[1:]))

    @property
    def savings(self) -> float:
        """The share of the unfactored cost that the tree saves, from 0 to 1."""
        return 1.0 - self.cost / self.unfactored_cost if self.unfactored_cost else 0.0

    @cached_property
    def depths(self) -> Array:
        """The number of filters on the path from the source to each node, the node included."""
        return node_depths(self.parents)

    def arrays(self, name: str) -> dict[str, Array]:
        """Return the arrays to store under a name."""
        return {
            f"{name}.parents": self.parents,
            **self.clauses.arrays(f"{name}.clauses"),
            **self.predicates.arrays(f"{name}.predicates"),
            f"{name}.selectivities": self.selectivities,
        }

    @staticmethod
    def stored(arrays: Arrays, name: str) -> FilterTree:
        """Read a tree that was stored under a name."""
        return FilterTree(
            parents=arrays[f"{name}.parents"],
            clauses=Rows.stored(arrays, f"{name}.clauses"),
            predicates=Rows.stored(arrays, f"{name}.predicates"),
            selectivities=arrays[f"{name}.selectivities"],
        )


@kernel
def node_depths(parents: Array) -> Array:
    """Return the number of ancestors of each node. A negative parent means none. Parents may have any numbers.

    >>> node_depths(np.array([2, -1, 1])).tolist()
    [2, 0, 1]
    """
    depths = np.full(len(parents), -1, dtype=np.int64)
    for node in range(len(parents)):
        steps, ancestor = 0, node
        while ancestor >= 0 and depths[ancestor] < 0:
            ancestor = parents[ancestor]
            steps += 1
        depth = steps - 1 if ancestor < 0 else depths[ancestor] + steps
        ancestor = node
        while ancestor >= 0 and depths[ancestor] < 0:
            depths[ancestor] = depth
            depth -= 1
            ancestor = parents[ancestor]
    return depths


def accepted(tree: FilterTree, truths: Array) -> set[int]:
    """Return the predicates that hold, by walking the tree. `truths` has the truth of every clause.

    >>> tree = FilterTree(
    ...     np.array([-1, 0, 1, 1]), Rows.of([[], [0], [1], [2]]), Rows.of([[], [], [7], [8]]),
    ...     np.array([1.0, 0.5, 0.1, 0.1]),
    ... )
    >>> accepted(tree, np.array([True, False, True])), tree.cost
    ({8}, 2.0)
    """
    passed = np.zeros(len(tree), dtype=bool)
    predicates: set[int] = set()
    for node in range(len(tree)):
        parent_passed = node == ROOT or passed[tree.parents[node]]
        passed[node] = bool(parent_passed and truths[tree.clauses.row(node)].all())
        if passed[node]:
            predicates.update(tree.predicates.row(node).tolist())
    return predicates
