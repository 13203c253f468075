"""The graph of one item, indexed, and the solutions of patterns on it: within bounds, and each once.

In: an item's attributes. Out: what `algebra.semantics.graph_solutions` would give, as plain values, for the few
patterns of which somebody wants to know more than whether they hold: those that bind variables of a match, or that
operators are given. Patterns with the same edges are searched for once, however many filters there are on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.graph_patterns import Edge, Graph, Node, is_local
from runnel.algebra.semantics.bindings import distinct
from runnel.algebra.semantics.evaluate import graphs_of
from runnel.algebra.semantics.graph_solutions import Solution, truth_of
from runnel.algebra.semantics.rdf_terms import plain_value
from runnel.model.graph import RdfGraph, Triple
from runnel.model.item import Attributes, Value

MOST_STEPS = 200_000
"""Triples that are looked at for the edges of one pattern and item."""

MOST_SOLUTIONS = 10_000
"""Solutions of the edges of a pattern that are looked at for one item."""


@dataclass(frozen=True, slots=True)
class ItemSolutions:
    """Solutions, and whether these are all."""

    solutions: tuple[Solution, ...]
    whole: bool


class ItemGraph:
    """The graphs of an item; nothing is read before the first question.

    >>> year = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    >>> ItemGraph({"graph": (RdfGraph('<urn:a> <urn:year> "1" .\\n'),)}).rows(year)
    [{'p': 'urn:a', 'y': '1'}]
    """

    def __init__(self, attributes: Attributes) -> None:
        self._graphs = graphs_of(attributes)
        self._indexes: list[_Index] | None = None
        self._found: dict[tuple[Edge, ...], ItemSolutions] = {}

    def rows(self, graph: Graph) -> list[dict[str, Value]] | None:
        """The solutions of a pattern as plain values, without its local variables; None where there are too many."""
        found = self.found(graph)
        return _plain(found.solutions) if found.whole else None

    def first_rows(self, graph: Graph) -> list[dict[str, Value]]:
        """The same, of too many those that are found first."""
        return _plain(self.found(graph).solutions)

    def found(self, graph: Graph) -> ItemSolutions:
        """The solutions of a pattern as terms."""
        if graph.edges not in self._found:
            self._found[graph.edges] = self._searched(graph.edges)
        every = self._found[graph.edges]
        if graph.filter is None:
            return every
        return ItemSolutions(tuple(one for one in every.solutions if truth_of(graph.filter, one)), every.whole)

    def _searched(self, edges: tuple[Edge, ...]) -> ItemSolutions:
        if self._indexes is None:
            self._indexes = [_Index(one) for one in self._graphs]
        found: list[Solution] = []
        for index in self._indexes:
            search = _Search(index, _ordered(edges, index))
            for one in search.solutions():
                found.append(one)
                if len(found) >= MOST_SOLUTIONS:
                    return ItemSolutions(tuple(found), False)
            if search.steps > MOST_STEPS:
                return ItemSolutions(tuple(found), False)
        return ItemSolutions(tuple(found), True)


def _plain(solutions: Sequence[Solution]) -> list[dict[str, Value]]:
    return distinct(
        {name: plain_value(term) for name, term in one.items() if not is_local(name)} for one in solutions
    )


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
