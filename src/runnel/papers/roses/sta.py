"""STA: the general approximation of a directed Steiner tree (RoSeS appendix A, algorithm 2), for small inputs.

As printed the algorithm has no root and no base case. Completed: a call has a root; at the lowest level a tree is a
star, the root with predicates that it subsumes; above, subtrees of least density (cost by predicates covered) are
taken until all predicates are covered. A greedy choice for fewer predicates is the beginning of the one for more, so
all sizes `k` of a subtree are looked at in one run.
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
        """The cost of reaching a predicate."""
        return self.cost / self.covered.bit_count() if self.covered else math.inf


def factor_by_sta(graph: SubsumptionGraph, levels: int = 3) -> FilterTree:
    """The filter tree of STA; a path from the source to a predicate has at most `levels` edges.

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
        best = search.thinnest(SOURCE, remaining, levels)
        for parent, child in best.edges:
            parents.setdefault(child, parent)
        remaining &= ~best.covered
    return graph.tree(_without_idle(graph, parents))


class _Search:
    """Subtrees by root and by the predicates still to be covered; each is searched once."""

    def __init__(self, graph: SubsumptionGraph) -> None:
        self._graph = graph
        self._known: dict[tuple[int, int, int, float], Subtree] = {}

    def thinnest(self, root: int, remaining: int, levels: int) -> Subtree:
        """The edge from the root to some vertex and a tree below it, of least density."""
        best = Subtree((), math.inf, 0)
        weight = self._weight(root)
        inside = self._graph.below[root] if root != SOURCE else (1 << len(self._graph.rates)) - 1
        for vertex in members(inside):
            reached = remaining & (self._graph.below[vertex] | 1 << vertex)
            if reached:
                below = self._grown(vertex, reached, levels - 1, weight)
                tree = Subtree(((root, vertex), *below.edges), weight + below.cost, below.covered)
                if tree.density < best.density:
                    best = tree
        return best

    def _grown(self, root: int, remaining: int, levels: int, entry: float) -> Subtree:
        """The tree below a root of least density together with the edge that leads to it, over all sizes."""
        if levels <= 1:
            return self._star(root, remaining)
        key = (root, remaining, levels, entry)
        if key not in self._known:
            self._known[key] = self._greedy(root, remaining, levels, entry)
        return self._known[key]

    def _star(self, root: int, remaining: int) -> Subtree:
        """The base case. All edges of a root weigh the same, so the largest star is the thinnest."""
        own = 1 << root & remaining
        others = members(remaining & ~own)
        return Subtree(tuple((root, one) for one in others), len(others) * self._weight(root), remaining)

    def _greedy(self, root: int, remaining: int, levels: int, entry: float) -> Subtree:
        """Subtrees of least density one after the other; the best beginning counts, the edge to the root included."""
        own = 1 << root & remaining
        tree, best = Subtree((), 0.0, own), Subtree((), math.inf, 0)
        left = remaining & ~own
        while True:
            if tree.covered and (tree.cost + entry) / tree.covered.bit_count() < best.density:
                best = Subtree(tree.edges, tree.cost + entry, tree.covered)
            if not left:
                break
            step = self.thinnest(root, left, levels)
            tree = Subtree((*tree.edges, *step.edges), tree.cost + step.cost, tree.covered | step.covered)
            left &= ~step.covered
        return Subtree(best.edges, best.cost - entry, best.covered)

    def _weight(self, node: int) -> float:
        return 1.0 if node == SOURCE else self._graph.rates[node]


def _without_idle(graph: SubsumptionGraph, parents: dict[int, int]) -> dict[int, int]:
    """Inserted filters that lead nowhere, since their children were reached on another way, are left out."""
    count = len(graph.problem.predicates)
    while True:
        busy = set(parents.values())
        kept = {node: parent for node, parent in parents.items() if node < count or node in busy}
        if len(kept) == len(parents):
            return kept
        parents = kept
