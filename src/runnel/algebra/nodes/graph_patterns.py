"""Graph patterns: edges between terms and variables, and a filter over these, as immutable values.

`graph { ?page ex:project ?p . ?p ex:year ?y . filter(?y > 2003) }` holds of an item whose graph the edges can be
laid into: a homomorphism, as in SPARQL, so two variables may stand for one node. `graph_solutions.solve` is the
definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Relation, Variable
from runnel.errors import Span
from runnel.model.graph import GRAPH

Node = str | Variable
"""A term as N-Triples writes it, or a variable; a blank node of a pattern is one whose name begins with `_:`."""

OWN_GRAPH = Attribute(GRAPH)

MOST_EDGES, MOST_VARIABLES = 64, 32
"""Edges and variables, blank nodes among them, that a pattern may have, joined with those beside it."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A triple of the graph that must be there."""

    subject: Node
    label: Node
    object: Node

    @property
    def nodes(self) -> tuple[Node, Node, Node]:
        """Subject, label and object."""
        return self.subject, self.label, self.object


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two terms stand in a relation, by SPARQL's rules (see `rdf.compare_terms`)."""

    left: Node
    relation: Relation
    right: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts of a filter hold."""

    parts: tuple[GraphFilter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some part of a filter holds."""

    parts: tuple[GraphFilter, ...]


@dataclass(frozen=True, slots=True)
class Complement:
    """A part of a filter does not hold, and is no error."""

    part: GraphFilter


@dataclass(frozen=True, slots=True)
class Certain:
    """A part of a filter holds; where it is an error this is false (SPARQL's `coalesce(part, false)`)."""

    part: GraphFilter


GraphFilter = Comparison | AllOf | AnyOf | Complement | Certain


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph pattern, as written or canonical: see `canonical`."""

    edges: tuple[Edge, ...]
    filter: GraphFilter | None = None
    names: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What the variables of a canonical pattern were called where it was written: the first is now named 1."""
    place: Span | None = field(default=None, compare=False, repr=False)

    @property
    def attribute(self) -> Attribute:
        """The attribute that is looked at."""
        return OWN_GRAPH


def comparisons(one: GraphFilter | None) -> Iterator[Comparison]:
    """The comparisons of a filter, from left to right."""
    match one:
        case Comparison():
            yield one
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from comparisons(part)
        case Complement(part) | Certain(part):
            yield from comparisons(part)
        case None:
            pass


def graph_variables(graph: Graph) -> list[str]:
    """The names of a pattern's variables, each once, in the order of the edges; filters have no others.

    >>> graph_variables(Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)))
    ['p', 'y']
    """
    nodes = (node for edge in graph.edges for node in edge.nodes)
    return list(dict.fromkeys(node.name for node in nodes if isinstance(node, Variable)))


def is_local(name: str) -> bool:
    """Whether a variable is a blank node of its pattern, which nobody outside knows."""
    return name.startswith("_:")


def canonical(graph: Graph) -> Graph:
    """The pattern with sorted edges and its variables named by their order: equal up to names is mostly equal.

    >>> one = canonical(Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),)))
    >>> one.edges[0].subject, one.names
    (Variable(name='1'), ('p', 'y'))
    """
    return graph if graph.names else _canonical(graph)


@lru_cache(maxsize=1 << 10)
def _canonical(graph: Graph) -> Graph:
    """The same for a pattern as written, which is mostly asked for twice."""
    edges = dict.fromkeys(graph.edges)
    ordered = sorted((edge for edge in edges if not _has_variables(edge)), key=lambda edge: _look(edge, {}))
    left = sorted((edge for edge in edges if _has_variables(edge)), key=lambda edge: _look(edge, {}))
    numbers: dict[str, str] = {}
    while left:
        # The next edge is the first by what is known of its variables so far: names as written play no part.
        edge = min(left, key=lambda one: _look(one, numbers))
        left.remove(edge)
        ordered.append(edge)
        for node in edge.nodes:
            if isinstance(node, Variable):
                numbers.setdefault(node.name, str(len(numbers) + 1))
    renamed = tuple(
        Edge(*(renamed_node(node, numbers) for node in edge.nodes)) if _has_variables(edge) else edge
        for edge in ordered
    )
    found = None if graph.filter is None else _ordered(renamed_filter(graph.filter, numbers))
    return replace(graph, edges=renamed, filter=found, names=tuple(numbers), place=None)


def _has_variables(edge: Edge) -> bool:
    return not (isinstance(edge.subject, str) and isinstance(edge.label, str) and isinstance(edge.object, str))


def _look(edge: Edge, numbers: dict[str, str]) -> tuple[tuple[int, str], ...]:
    """What an edge looks like where variables have these numbers; unknown ones come last."""
    own: dict[str, str] = {}
    found: list[tuple[int, str]] = []
    for node in (edge.label, edge.subject, edge.object):
        if isinstance(node, str):
            found.append((0, node))
        elif node.name in numbers:
            found.append((1, numbers[node.name]))
        else:
            found.append((2, own.setdefault(node.name, str(len(own)))))
    return tuple(found)


def _ordered(one: GraphFilter) -> GraphFilter:
    """A filter that says the same: flat, without repetitions, its parts in order."""
    match one:
        case AllOf(parts) | AnyOf(parts):
            kind = type(one)
            flat: dict[GraphFilter, None] = {}
            for part in map(_ordered, parts):
                flat.update(dict.fromkeys(part.parts if isinstance(part, kind) else (part,)))
            return next(iter(flat)) if len(flat) == 1 else kind(tuple(sorted(flat, key=repr)))
        case Complement(part) | Certain(part):
            return type(one)(_ordered(part))
        case _:
            return one


def renamed_node(node: Node, names: dict[str, str]) -> Node:
    """A node with its variable called otherwise."""
    return Variable(names[node.name]) if isinstance(node, Variable) else node


def renamed_filter(one: GraphFilter, names: dict[str, str]) -> GraphFilter:
    """A filter with its variables called otherwise."""
    match one:
        case Comparison(left, relation, right):
            return Comparison(renamed_node(left, names), relation, renamed_node(right, names))
        case AllOf(parts):
            return AllOf(tuple(renamed_filter(part, names) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(renamed_filter(part, names) for part in parts))
        case Complement(part) | Certain(part):
            return type(one)(renamed_filter(part, names))


def as_written(graph: Graph) -> Graph:
    """A canonical pattern with the names its variables had."""
    if not graph.names:
        return graph
    names = {str(number): name for number, name in enumerate(graph.names, 1)}
    edges = tuple(Edge(*(renamed_node(node, names) for node in edge.nodes)) for edge in graph.edges)
    return Graph(edges, None if graph.filter is None else renamed_filter(graph.filter, names))
