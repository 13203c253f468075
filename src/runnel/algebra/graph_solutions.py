"""The reference semantics of graph patterns: slow, short, and the definition (SPARQL 1.1, sections 18.3 and 17.2).

A solution gives every variable a term so that all edges are triples of the graph and the filter holds. Edges are
tried in the order in which they are written. A filter's errors are unknown in Kleene's three values, and what is
unknown does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from runnel.algebra.calls import Variable
from runnel.algebra.graphs import AllOf, AnyOf, Comparison, Complement, Edge, Graph, GraphFilter, Node, is_local
from runnel.algebra.rdf import compare_terms, plain_value
from runnel.model.graph import Triple
from runnel.model.item import Value

Solution = Mapping[str, str]
"""A term for every variable."""


def solve(graph: Graph, triples: Iterable[Triple]) -> Iterator[Solution]:
    """The solutions of a pattern on a graph; with local variables some may be alike but for these.

    >>> year = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    >>> list(solve(year, [("<urn:a>", "<urn:year>", '"1"'), ("<urn:a>", "<urn:name>", '"A"')]))
    [{'p': '<urn:a>', 'y': '"1"'}]
    """
    known = list(triples)
    for found in _extended(graph.edges, known, {}):
        if graph.filter is None or truth_of(graph.filter, found):
            yield found


def _extended(edges: tuple[Edge, ...], triples: list[Triple], bound: Solution) -> Iterator[Solution]:
    if not edges:
        yield bound
        return
    for triple in triples:
        more = _laid(edges[0], triple, bound)
        if more is not None:
            yield from _extended(edges[1:], triples, more)


def _laid(edge: Edge, triple: Triple, bound: Solution) -> Solution | None:
    """The binding with an edge laid onto a triple."""
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


def _term(node: Node, solution: Solution) -> str:
    return solution[node.name] if isinstance(node, Variable) else node


def matches_graph(graph: Graph, triples: Iterable[Triple]) -> bool:
    """Whether a pattern has a solution on a graph."""
    return next(solve(graph, triples), None) is not None


def graph_bindings(graph: Graph, triples: Iterable[Triple]) -> list[dict[str, Value]]:
    """The solutions as bindings of a match: plain values by the names of the variables, without local ones."""
    return [
        {name: plain_value(term) for name, term in one.items() if not is_local(name)} for one in solve(graph, triples)
    ]
