"""Edges and filters, the parts of a graph pattern, as immutable values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runnel.algebra.nodes.calls import Relation, Variable

Node = str | Variable
"""A term in N-Triples syntax, or a variable. A blank node of a pattern is a variable whose name begins with `_:`."""

MAX_EDGES, MAX_VARIABLES = 64, 32
"""Limits on the edges and variables, including blank nodes, of a pattern after joining it with others."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A triple that the graph must contain."""

    subject: Node
    label: Node
    object: Node

    @property
    def nodes(self) -> tuple[Node, Node, Node]:
        """Subject, label and object."""
        return self.subject, self.label, self.object


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two terms by SPARQL's rules (see `rdf_terms.compare_terms`)."""

    left: Node
    relation: Relation
    right: Node


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts of a filter hold."""

    parts: tuple[GraphFilter, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part of a filter holds."""

    parts: tuple[GraphFilter, ...]


@dataclass(frozen=True, slots=True)
class Complement:
    """A part of a filter is false. If the part is an error, so is this."""

    part: GraphFilter


@dataclass(frozen=True, slots=True)
class Certain:
    """A part of a filter holds. If the part is an error, this is false, like SPARQL's `coalesce(part, false)`."""

    part: GraphFilter


GraphFilter = Comparison | AllOf | AnyOf | Complement | Certain


@dataclass(frozen=True, slots=True)
class EdgePattern:
    """Edges that must all be in a graph, and a filter over their variables."""

    edges: tuple[Edge, ...]
    filter: GraphFilter | None = None


def comparisons(graph_filter: GraphFilter | None) -> Iterator[Comparison]:
    """Yield the comparisons of a filter from left to right."""
    match graph_filter:
        case Comparison():
            yield graph_filter
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from comparisons(part)
        case Complement(part) | Certain(part):
            yield from comparisons(part)
        case None:
            pass


def renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node with its variable renamed."""
    return Variable(names[node.name]) if isinstance(node, Variable) else node


def renamed_filter(graph_filter: GraphFilter, names: Mapping[str, str]) -> GraphFilter:
    """Return a filter with its variables renamed."""
    match graph_filter:
        case Comparison(left, relation, right):
            return Comparison(renamed_node(left, names), relation, renamed_node(right, names))
        case AllOf(parts):
            return AllOf(tuple(renamed_filter(part, names) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(renamed_filter(part, names) for part in parts))
        case Complement(part) | Certain(part):
            return type(graph_filter)(renamed_filter(part, names))
