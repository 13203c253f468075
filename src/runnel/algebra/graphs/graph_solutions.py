"""The reference semantics of graph patterns: slow, short, and the definition (SPARQL 1.1, sections 18.3 and 17.2).

A solution gives every variable a term so that all edges are triples of the graph and the filter holds. Edges are
tried in the order in which they are written. A filter's errors are unknown in Kleene's three values, and what is
unknown does not hold. Laying a pattern into a graph may take exponential time, so there is a bound on the attempts.
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

MOST_ATTEMPTS = 200_000
"""Triples that are tried for one pattern on one graph."""


def solve(graph: EdgePattern, triples: Iterable[Triple]) -> Iterator[Solution]:
    """The solutions of a pattern on a graph; with local variables some may be alike but for these.

    >>> year = EdgePattern((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    >>> list(solve(year, [("<urn:a>", "<urn:year>", '"1"'), ("<urn:a>", "<urn:name>", '"A"')]))
    [{'p': '<urn:a>', 'y': '"1"'}]
    """
    for found in IndexedTriples(triples).solutions(graph.edges, MOST_ATTEMPTS):
        if graph.filter is None or truth_of(graph.filter, found):
            yield found


class IndexedTriples(Generic[_Term]):
    """The triples of a graph, all and by the terms that they have in each position.

    The variables of a pattern are terms where another pattern is laid into it.
    """

    def __init__(self, triples: Iterable[tuple[_Term, _Term, _Term]]) -> None:
        self._all: list[tuple[_Term, _Term, _Term]] = list(triples)
        self._having: tuple[dict[Node, list[tuple[_Term, _Term, _Term]]], ...] = ({}, {}, {})
        for triple in self._all:
            for having, term in zip(self._having, triple, strict=True):
                having.setdefault(term, []).append(triple)
        self._left = 0

    def solutions(self, edges: tuple[Edge, ...], attempts: int) -> Iterator[Mapping[str, _Term]]:
        """The solutions of edges, tried in order; TooExpensiveError after too many attempts."""
        self._left = attempts
        return self._extended(edges, {})

    def _extended(self, edges: tuple[Edge, ...], bound: Mapping[str, _Term]) -> Iterator[Mapping[str, _Term]]:
        """The solutions of edges that extend a binding."""
        if not edges:
            yield bound
            return
        for triple in self.candidates(edges[0], bound):
            self._left -= 1
            if self._left < 0:
                raise TooExpensiveError(
                    "the graph pattern has too many ways to be laid into the item's graph",
                    hint="name more nodes or labels, or write edges next to each other that share variables",
                )
            more = lay_edge(edges[0], triple, bound)
            if more is not None:
                yield from self._extended(edges[1:], more)

    def candidates(self, edge: Edge, bound: Mapping[str, _Term]) -> Sequence[tuple[_Term, _Term, _Term]]:
        """The triples that an edge may be, by the rarest of its nodes that is known."""
        found: Sequence[tuple[_Term, _Term, _Term]] = self._all
        for having, node in zip(self._having, edge.nodes, strict=True):
            term = node if isinstance(node, str) else bound.get(node.name)
            if term is not None:
                others = having.get(term, ())
                if len(others) < len(found):
                    found = others
        return found


def lay_edge(
    edge: Edge, triple: tuple[_Term, _Term, _Term], bound: Mapping[str, _Term]
) -> Mapping[str, _Term] | None:
    """The binding with an edge laid onto a triple; None where it does not fit."""
    found = dict(bound)
    for node, term in zip(edge.nodes, triple, strict=True):
        if (node if isinstance(node, str) else found.setdefault(node.name, term)) != term:
            return None
    return found


def truth_of(one: GraphFilter, solution: Solution) -> bool | None:
    """Whether a filter holds under a binding of its variables; None is an error."""
    match one:
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
    """Whether a pattern has a solution on a graph."""
    return next(solve(graph, triples), None) is not None


def graph_bindings(graph: EdgePattern, triples: Iterable[Triple]) -> list[dict[str, Value]]:
    """The solutions as bindings of a match."""
    return [plain_binding(one) for one in solve(graph, triples)]


def plain_binding(solution: Solution) -> dict[str, Value]:
    """The terms of a solution as plain values by the names of the variables, without local ones."""
    return {name: plain_value(term) for name, term in solution.items() if not is_local(name)}
