"""The graph of one item, indexed, and the solutions of patterns on it: within limits, and each once.

In: an item's attributes. Out: the solutions of `algebra.graphs.graph_solutions`, for the few patterns that bind
variables of a match or give them to operators. The search is that of the definition, with edges in a better order.
Patterns with the same edges are searched for once, however many filters there are on them.
"""

from __future__ import annotations

from runnel.algebra.graphs.edges import Edge, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import IndexedTriples, truth_of
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import Solution
from runnel.errors import TooExpensiveError
from runnel.matching.patterns.contract import FoundSolutions
from runnel.model.graph import GRAPH, RdfGraph
from runnel.model.item import Attributes

MOST_STEPS = 200_000
"""Triples that are looked at for the edges of one pattern and item."""

MOST_SOLUTIONS = 10_000
"""Solutions of the edges of a pattern that are looked at for one item."""


class ItemGraph:
    """The graphs of an item; nothing is read before the first question.

    >>> year = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    >>> ItemGraph({"graph": (RdfGraph('<urn:a> <urn:year> "1" .\\n'),)}).found(year).solutions
    ({'p': '<urn:a>', 'y': '"1"'},)
    """

    def __init__(self, attributes: Attributes) -> None:
        self._graphs = [value for value in attributes.get(GRAPH, ()) if isinstance(value, RdfGraph)]
        self._indexes: list[IndexedTriples] | None = None
        self._found: dict[tuple[Edge, ...], FoundSolutions] = {}

    def found(self, graph: Graph) -> FoundSolutions:
        """The solutions of a pattern as terms."""
        if graph.edges not in self._found:
            self._found[graph.edges] = self._searched(graph.edges)
        every = self._found[graph.edges]
        if graph.filter is None:
            return every
        return FoundSolutions(tuple(one for one in every.solutions if truth_of(graph.filter, one)), every.is_whole)

    def _searched(self, edges: tuple[Edge, ...]) -> FoundSolutions:
        if self._indexes is None:
            self._indexes = [IndexedTriples(one.triples()) for one in self._graphs]
        found: list[Solution] = []
        for index in self._indexes:
            try:
                for one in index.solutions(_ordered(edges, index), MOST_STEPS):
                    found.append(one)
                    if len(found) >= MOST_SOLUTIONS:
                        return FoundSolutions(tuple(found), False)
            except TooExpensiveError:
                return FoundSolutions(tuple(found), False)
        return FoundSolutions(tuple(found), True)


def _ordered(edges: tuple[Edge, ...], index: IndexedTriples) -> tuple[Edge, ...]:
    """The edges so that each has as many ends as can be that are known by then; of those the rarest first."""
    left, known, ordered = list(edges), set[str](), []
    rarity = {edge: len(index.candidates(edge, {})) for edge in edges}
    while left:
        edge = max(left, key=lambda one: (sum(_is_known(node, known) for node in one.nodes), -rarity[one]))
        left.remove(edge)
        ordered.append(edge)
        known |= {node.name for node in edge.nodes if isinstance(node, Variable)}
    return tuple(ordered)


def _is_known(node: Node, known: set[str]) -> bool:
    return not isinstance(node, Variable) or node.name in known
