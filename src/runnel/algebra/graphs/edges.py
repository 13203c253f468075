"""Edges and filters: what a graph pattern is made of, as immutable values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runnel.algebra.nodes.calls import Relation, Variable

Node = str | Variable
"""A term as N-Triples writes it, or a variable; a blank node of a pattern is one whose name begins with `_:`."""

MAX_EDGES, MAX_VARIABLES = 64, 32
"""Limits on the edges and variables, including blank nodes, of a pattern after joining it with others."""


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
class EdgePattern:
    """Edges that must all be in a graph, and a filter over their variables."""

    edges: tuple[Edge, ...]
    filter: GraphFilter | None = None


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


def renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    """A node with its variable called otherwise."""
    return Variable(names[node.name]) if isinstance(node, Variable) else node


def renamed_filter(one: GraphFilter, names: Mapping[str, str]) -> GraphFilter:
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
