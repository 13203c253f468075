"""VCA over an explicit subsumption graph (RoSeS §5, algorithm 1), step by step as printed, for small inputs.

The candidates are computed again after every change of the border, which the Very Clever Border avoids.
"""

from __future__ import annotations

from runnel.papers.roses.cost_model import benefit
from runnel.papers.roses.factoring.filter_tree import FilterTree
from runnel.papers.roses.subsumption_graph import SOURCE, SubsumptionGraph, members


def factor_by_vca(graph: SubsumptionGraph) -> FilterTree:
    """Build the filter tree of VCA.

    >>> import numpy as np
    >>> from runnel.papers.roses.factoring.filters import Filters
    >>> from runnel.papers.roses.subsumption_graph import build_graph
    >>> from runnel.arrays import Rows
    >>> filters = Filters.of(Rows.of([[0, 1], [0, 2], [0, 2, 3]]), np.array([0.1, 0.1, 0.1, 0.1]))
    >>> round(factor_by_vca(build_graph(filters)).cost, 3)
    1.21
    """
    plan = _Plan(graph)
    candidates = plan.candidates()
    while candidates:
        best = min(candidates, key=lambda node: (graph.rates[node], graph.order[node]))  # line 8
        if plan.gain(best) > 0.0:
            plan.expand(best)
            candidates = plan.candidates()  # line 28
        else:
            candidates.remove(best)  # line 30
    return graph.tree(plan.parents)


class _Plan:
    """The growing plan. Its border is the set of the source's children."""

    def __init__(self, graph: SubsumptionGraph) -> None:
        self._graph = graph
        self._predicates = len(graph.problem.predicates)
        self.parents = dict.fromkeys(range(self._predicates), SOURCE)
        self._children: dict[int, set[int]] = {}
        self._border = graph.terminals

    def candidates(self) -> set[int]:
        """Return all nodes that subsume at least two nodes of the border. A node of the border subsumes itself."""
        return {node for node in range(len(self._graph.rates)) if self._factorized(node).bit_count() >= 2}

    def _factorized(self, node: int) -> int:
        return self._border & (self._graph.below[node] | 1 << node)

    def gain(self, node: int) -> float:
        """Return the saving of a candidate as a child of the source (line 11)."""
        children = self._factorized(node).bit_count()
        in_border = bool(self._border >> node & 1)
        return benefit(children, 1.0, self._graph.rates[node], inserted=not in_border)

    def expand(self, node: int) -> None:
        """Insert a candidate below the source, above the nodes it subsumes. Remove useless filters (lines 12-27)."""
        factorized = self._factorized(node) & ~(1 << node)
        self.parents[node] = SOURCE
        children = self._children.setdefault(node, set())
        for child in members(factorized):
            grandchildren = self._children.get(child, set())
            saving = benefit(len(grandchildren), self._graph.rates[node], self._graph.rates[child])
            if child >= self._predicates and saving < 0.0:
                # Line 21; the reduced filter, which the paper leaves dangling, is removed.
                children |= grandchildren
                self.parents |= dict.fromkeys(grandchildren, node)
                del self.parents[child]
            else:
                children.add(child)
                self.parents[child] = node
        self._border = self._border & ~factorized | 1 << node
