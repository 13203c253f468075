"""Edges and filters of graph patterns as JSON values. Names of variables begin with `?`."""

from __future__ import annotations

from typing import Any, cast

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, Edge, GraphFilter, Node
from runnel.algebra.nodes.calls import Relation, Variable


def encode_edge(edge: Edge) -> list[str]:
    """A JSON value for an edge.

    >>> encode_edge(Edge(Variable("p"), "<urn:year>", '"1"'))
    ['?p', '<urn:year>', '"1"']
    """
    return [_encode_node(node) for node in edge.nodes]


def decode_edge(value: list[str]) -> Edge:
    """The edge of a value made by `encode_edge`."""
    return Edge(*map(_decode_node, value))


def _encode_node(node: Node) -> str:
    return f"?{node.name}" if isinstance(node, Variable) else node


def _decode_node(text: str) -> Node:
    return Variable(text[1:]) if text[0] == "?" else text


def encode_filter(one: GraphFilter) -> Any:
    """A JSON value for a filter."""
    match one:
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
    """The filter of a value made by `encode_filter`."""
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
