"""The stored form of the edges and filters of graph patterns. Names of variables begin with `?`."""

from __future__ import annotations

from typing import Any, cast

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, Edge, GraphFilter, Node
from runnel.algebra.nodes.calls import Relation, Variable


def encode_edge(edge: Edge) -> list[str]:
    """Return a JSON value for an edge.

    >>> encode_edge(Edge(Variable("p"), "<urn:year>", '"1"'))
    ['?p', '<urn:year>', '"1"']
    """
    return [_encode_node(node) for node in edge.nodes]


def decode_edge(value: list[str]) -> Edge:
    """Return the edge of a value that `encode_edge` returned."""
    return Edge(*map(_decode_node, value))


def _encode_node(node: Node) -> str:
    return f"?{node.name}" if isinstance(node, Variable) else node


def _decode_node(text: str) -> Node:
    return Variable(text[1:]) if text[0] == "?" else text


def encode_filter(graph_filter: GraphFilter) -> Any:
    """Return a JSON value for a filter."""
    match graph_filter:
        case Comparison(left, relation, right):
            return [relation, _encode_node(left), _encode_node(right)]
        case AllOf(parts):
            return ["and", *map(encode_filter, parts)]
        case AnyOf(parts):
            return ["or", *map(encode_filter, parts)]
        case Complement(part):
            return ["not", encode_filter(part)]
        case Certain(part):
            return ["certain", encode_filter(part)]


def decode_filter(value: Any) -> GraphFilter:
    """Return the filter of a value that `encode_filter` returned."""
    match value:
        case ["and", *parts]:
            return AllOf(tuple(map(decode_filter, parts)))
        case ["or", *parts]:
            return AnyOf(tuple(map(decode_filter, parts)))
        case ["not", part]:
            return Complement(decode_filter(part))
        case ["certain", part]:
            return Certain(decode_filter(part))
        case [relation, left, right]:
            return Comparison(_decode_node(left), cast(Relation, relation), _decode_node(right))
    raise ValueError(f"unknown filter {value!r}")
