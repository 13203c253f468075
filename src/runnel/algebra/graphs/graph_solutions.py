"""The reference semantics of graph patterns: slow, short, and the definition (SPARQL 1.1, sections 18.3 and 17.2).

A solution assigns a term to every variable so that all edges are triples of the graph and the filter holds. Edges are
tried in source order. An error in a filter is the unknown value of Kleene's logic, and a filter that is unknown does
not hold. Finding solutions may take exponential time, so the number of attempts is limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from runnel.algebra.graphs.edges import (
    AllOf,
    AnyOf,
    Certain,
    Comparison,
    Complement,
    Edge,
    EdgePattern,
    GraphFilter,
    Node,
)
from runnel.algebra.graphs.rdf_terms import compare_terms, plain_value
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import Solution, is_local
from runnel.errors import TooExpensiveError
from runnel.model.graph import Triple
from runnel.model.item import Value

_Term = TypeVar("_Term", str, Node)

MAX_ATTEMPTS = 200_000
"""How many triples are tried for one pattern on one graph."""


def solve(graph: EdgePattern, triples: Iterable[Triple]) -> Iterator[Solution]:
    """Yield the solutions of a pattern on a graph. Some may differ only in local variables.

    >>> year = EdgePattern((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    >>> list(solve(year, [("<urn:a>", "<urn:year>", '"1"'), ("<urn:a>", "<urn:name>", '"A"')]))
    [{'p': '<urn:a>', 'y': '"1"'}]
    """
    for solution in IndexedTriples(triples).solutions(graph.edges, MAX_ATTEMPTS):
        if graph.filter is None or truth_of(graph.filter, solution):
            yield solution


class IndexedTriples(Generic[_Term]):
    """The triples of a graph, indexed by their subjects, labels and objects.

    The "graph" can also be a pattern, to find whether it contains another one; then its variables count as terms.
    """

    def __init__(self, triples: Iterable[tuple[_Term, _Term, _Term]]) -> None:
        self._all: list[tuple[_Term, _Term, _Term]] = list(triples)
        self._by_term: tuple[dict[Node, list[tuple[_Term, _Term, _Term]]], ...] = ({}, {}, {})
        for triple in self._all:
            for triples_by_term, term in zip(self._by_term, triple, strict=True):
                triples_by_term.setdefault(term, []).append(triple)
        self._attempts_left = 0

    def solutions(self, edges: tuple[Edge, ...], attempts: int) -> Iterator[Mapping[str, _Term]]:
        """Yield the solutions of edges, tried in order. Raise TooExpensiveError after too many attempts."""
        self._attempts_left = attempts
        return self._extend(edges, {})

    def _extend(self, edges: tuple[Edge, ...], bound: Mapping[str, _Term]) -> Iterator[Mapping[str, _Term]]:
        """Yield the solutions of edges that extend a binding."""
        if not edges:
            yield bound
            return
        for triple in self.candidates(edges[0], bound):
            self._attempts_left -= 1
            if self._attempts_left < 0:
                raise TooExpensiveError(
                    "the graph pattern has too many possible matches in the item's graph",
                    hint="replace variables by terms, or write edges that share variables next to each other",
                )
            extended = lay_edge(edges[0], triple, bound)
            if extended is not None:
                yield from self._extend(edges[1:], extended)

    def candidates(self, edge: Edge, bound: Mapping[str, _Term]) -> Sequence[tuple[_Term, _Term, _Term]]:
        """Return the triples that may match an edge, by the rarest of its nodes that is a term or bound."""
        rarest: Sequence[tuple[_Term, _Term, _Term]] = self._all
        for triples_by_term, node in zip(self._by_term, edge.nodes, strict=True):
            term = node if isinstance(node, str) else bound.get(node.name)
            if term is not None:
                triples = triples_by_term.get(term, ())
                if len(triples) < len(rarest):
                    rarest = triples
        return rarest


def lay_edge(
    edge: Edge, triple: tuple[_Term, _Term, _Term], bound: Mapping[str, _Term]
) -> Mapping[str, _Term] | None:
    """Extend a binding so that an edge matches a triple. Return None if that is impossible."""
    extended = dict(bound)
    for node, term in zip(edge.nodes, triple, strict=True):
        if (node if isinstance(node, str) else extended.setdefault(node.name, term)) != term:
            return None
    return extended


def truth_of(graph_filter: GraphFilter, solution: Solution) -> bool | None:
    """Return whether a filter holds for values of its variables, or None for an error."""
    match graph_filter:
        case Comparison(left, relation, right):
            return compare_terms(_term(left, solution), relation, _term(right, solution))
        case AllOf(parts):
            values = [truth_of(part, solution) for part in parts]
            return False if False in values else None if None in values else True
        case AnyOf(parts):
            values = [truth_of(part, solution) for part in parts]
            return True if True in values else None if None in values else False
        case Complement(part):
            value = truth_of(part, solution)
            return None if value is None else not value
        case Certain(part):
            return bool(truth_of(part, solution))


def _term(node: Node, solution: Solution) -> str:
    return solution[node.name] if isinstance(node, Variable) else node


def matches_graph(graph: EdgePattern, triples: Iterable[Triple]) -> bool:
    """Return whether a pattern has a solution on a graph."""
    return next(solve(graph, triples), None) is not None


def graph_bindings(graph: EdgePattern, triples: Iterable[Triple]) -> list[dict[str, Value]]:
    """Return the solutions as bindings of a match."""
    return [plain_binding(solution) for solution in solve(graph, triples)]


def plain_binding(solution: Solution) -> dict[str, Value]:
    """Return the terms of a solution as plain values by variable, without local variables."""
    return {name: plain_value(term) for name, term in solution.items() if not is_local(name)}
