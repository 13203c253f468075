"""The graph of one item, indexed, and the solutions of patterns on it: within bounds, and each once.

In: an item's attributes. Out: what `algebra.graphs.graph_solutions` would give, for the few
patterns of which somebody wants to know more than whether they hold: those that bind variables of a match, or that
operators are given. Patterns with the same edges are searched for once, however many filters there are on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runnel.algebra.graphs.edges import Edge, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import truth_of
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import Solution
from runnel.matching.patterns.contract import FoundSolutions
from runnel.model.graph import GRAPH, RdfGraph, Triple
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
        self._indexes: list[_Index] | None = None
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
            self._indexes = [_Index(one) for one in self._graphs]
        found: list[Solution] = []
        for index in self._indexes:
            search = _Search(index, _ordered(edges, index))
            for one in search.solutions():
                found.append(one)
                if len(found) >= MOST_SOLUTIONS:
                    return FoundSolutions(tuple(found), False)
            if search.steps > MOST_STEPS:
                return FoundSolutions(tuple(found), False)
        return FoundSolutions(tuple(found), True)


class _Index:
    """The triples of a graph by their terms."""

    def __init__(self, graph: RdfGraph) -> None:
        self.triples = list(graph.triples())
        self.by_term: tuple[dict[str, list[Triple]], ...] = ({}, {}, {})
        for triple in self.triples:
            for place, term in enumerate(triple):
                self.by_term[place].setdefault(term, []).append(triple)

    def candidates(self, edge: Edge, bound: Solution) -> Sequence[Triple]:
        """The triples that an edge may be laid onto: the fewest that one of its known terms leaves."""
        best: Sequence[Triple] = self.triples
        for place, node in enumerate(edge.nodes):
            term = bound.get(node.name) if isinstance(node, Variable) else node
            if term is not None:
                some = self.by_term[place].get(term, ())
                if len(some) < len(best):
                    best = some
        return best


def _ordered(edges: tuple[Edge, ...], index: _Index) -> tuple[Edge, ...]:
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


class _Search:
    """Lays edges into a graph one after the other, and goes back: with a stack, as deep as there are edges."""

    def __init__(self, index: _Index, edges: tuple[Edge, ...]) -> None:
        self._index = index
        self._edges = edges
        self.steps = 0

    def solutions(self) -> Iterator[Solution]:
        """The solutions, until there were too many steps."""
        if not self._edges:
            yield {}
            return
        stack: list[Iterator[Solution]] = [self._laid(0, {})]
        while stack:
            bound = next(stack[-1], None)
            if bound is None:
                stack.pop()
            elif len(stack) == len(self._edges):
                yield bound
            else:
                stack.append(self._laid(len(stack), bound))

    def _laid(self, place: int, bound: Solution) -> Iterator[Solution]:
        edge = self._edges[place]
        for triple in self._index.candidates(edge, bound):
            self.steps += 1
            if self.steps > MOST_STEPS:
                return
            found = dict(bound)
            for node, term in zip(edge.nodes, triple, strict=True):
                if (node if isinstance(node, str) else found.setdefault(node.name, term)) != term:
                    break
            else:
                yield found
