"""STA: the general approximation of a directed Steiner tree (RoSeS appendix A, algorithm 2), for small inputs.

The printed algorithm has neither a root nor a base case. This module adds both. Each call has a root. At the lowest
level a tree is a star: the root and the predicates that it subsumes. At higher levels, subtrees of the least density
(cost per covered predicate) are added until all predicates are covered. The greedy choice for k predicates is a
prefix of the choice for k + 1, so one run examines all sizes of a subtree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from runnel.papers.roses.factoring.filter_tree import FilterTree
from runnel.papers.roses.subsumption_graph import SOURCE, SubsumptionGraph, members

Edges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Subtree:
    """Edges (parent, child), their cost and the predicates that they reach."""

    edges: Edges
    cost: float
    covered: int

    @property
    def density(self) -> float:
        """The cost per predicate reached."""
        return self.cost / self.covered.bit_count() if self.covered else math.inf


def factor_by_sta(graph: SubsumptionGraph, levels: int = 3) -> FilterTree:
    """Build the filter tree of STA. A path from the source to a predicate has at most `levels` edges.

    >>> import numpy as np
    >>> from runnel.papers.roses.factoring.filters import Filters
    >>> from runnel.papers.roses.subsumption_graph import build_graph
    >>> from runnel.arrays import Rows
    >>> filters = Filters.of(Rows.of([[0, 1], [0, 2], [0, 2, 3]]), np.array([0.1, 0.1, 0.1, 0.1]))
    >>> round(factor_by_sta(build_graph(filters)).cost, 3)
    1.21
    """
    search = _Search(graph)
    parents: dict[int, int] = {}
    remaining = graph.terminals
    while remaining:
        best = search.least_dense(SOURCE, remaining, levels)
        for parent, child in best.edges:
            parents.setdefault(child, parent)
        remaining &= ~best.covered
    return graph.tree(_drop_childless(graph, parents))


class _Search:
    """Finds subtrees, and caches them by root and by the predicates still to be covered."""

    def __init__(self, graph: SubsumptionGraph) -> None:
        self._graph = graph
        self._cache: dict[tuple[int, int, int, float], Subtree] = {}

    def least_dense(self, root: int, remaining: int, levels: int) -> Subtree:
        """Return the subtree of the least density that consists of one edge from the root and the tree below it."""
        best = Subtree((), math.inf, 0)
        weight = self._weight(root)
        candidates = self._graph.below[root] if root != SOURCE else (1 << len(self._graph.rates)) - 1
        for vertex in members(candidates):
            reached = remaining & (self._graph.below[vertex] | 1 << vertex)
            if reached:
                subtree = self._grow(vertex, reached, levels - 1, weight)
                tree = Subtree(((root, vertex), *subtree.edges), weight + subtree.cost, subtree.covered)
                if tree.density < best.density:
                    best = tree
        return best

    def _grow(self, root: int, remaining: int, levels: int, entry: float) -> Subtree:
        """Return the tree below a root that has the least density together with the edge to the root, over all sizes.

        `entry` is the weight of that edge.
        """
        if levels <= 1:
            return self._star(root, remaining)
        key = (root, remaining, levels, entry)
        if key not in self._cache:
            self._cache[key] = self._greedy(root, remaining, levels, entry)
        return self._cache[key]

    def _star(self, root: int, remaining: int) -> Subtree:
        """Return the base case. All edges of a root weigh the same, so the largest star is the least dense."""
        own = 1 << root & remaining
        others = members(remaining & ~own)
        return Subtree(tuple((root, node) for node in others), len(others) * self._weight(root), remaining)

    def _greedy(self, root: int, remaining: int, levels: int, entry: float) -> Subtree:
        """Add subtrees of the least density one after another. Return the best prefix, edge to the root included."""
        own = 1 << root & remaining
        tree, best = Subtree((), 0.0, own), Subtree((), math.inf, 0)
        uncovered = remaining & ~own
        while True:
            if tree.covered and (tree.cost + entry) / tree.covered.bit_count() < best.density:
                best = Subtree(tree.edges, tree.cost + entry, tree.covered)
            if not uncovered:
                break
            step = self.least_dense(root, uncovered, levels)
            tree = Subtree((*tree.edges, *step.edges), tree.cost + step.cost, tree.covered | step.covered)
            uncovered &= ~step.covered
        return Subtree(best.edges, best.cost - entry, best.covered)

    def _weight(self, node: int) -> float:
        return 1.0 if node == SOURCE else self._graph.rates[node]


def _drop_childless(graph: SubsumptionGraph, parents: dict[int, int]) -> dict[int, int]:
    """Remove inserted filters without children; their children were reached on another path."""
    count = len(graph.problem.predicates)
    while True:
        with_children = set(parents.values())
        kept = {node: parent for node, parent in parents.items() if node < count or node in with_children}
        if len(kept) == len(parents):
            return kept
        parents = kept
