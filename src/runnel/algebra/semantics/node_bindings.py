"""What the variables of a query's own conditions are bound to, whatever its shape: the definition.

In: a query's node over feeds, the views it reads, and an item. Out: bindings, of every way by which the item reaches
it. Variables of views are none of the query's. Operators take no part here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from runnel.algebra.nodes.calls import Call
from runnel.algebra.nodes.encode import decode_node, encode_node
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union
from runnel.algebra.semantics.bindings import Definition, PatternRows, distinct, joined, solutions
from runnel.algebra.semantics.evaluate import accepts, views_below
from runnel.model.item import Attributes, Value
from runnel.model.operator import Rows


def node_solutions(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    accepted: datetime | None = None,
    rows_of: PatternRows | None = None,
) -> list[dict[str, Value]]:
    """The bindings of a query on an item of the source feed `feed`; none where it does not match.

    >>> from runnel.algebra.nodes.expressions import Truth
    >>> node_solutions(Filter(Read(1), Truth(True)), 1, {}, {}), node_solutions(Read(1), 2, {}, {})
    ([{}], [])
    """
    found = distinct(_solved(node, feed, attributes, definitions, accepted, rows_of or Definition(attributes).rows))
    return [one for one in found if one] or found


def _solved(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    accepted: datetime | None,
    rows_of: PatternRows,
) -> list[dict[str, Value]]:
    match node:
        case Read() | ReadAll():
            return [{}] if accepts(node, feed, attributes, definitions, accepted) else []
        case Union(inputs):
            return [row for one in inputs for row in _solved(one, feed, attributes, definitions, accepted, rows_of)]
        case Gated(inner, _):
            return _solved(inner, feed, attributes, definitions, accepted, rows_of)
        case Filter(inner, condition):
            found: list[dict[str, Value]] = []
            own = solutions(condition, attributes, _unasked, accepted, rows_of)
            for row in _solved(inner, feed, attributes, definitions, accepted, rows_of):
                # Ways by which variables of a union are bound differ in their names: each is joined by itself.
                found += joined([row], own)
            return found


def _unasked(call: Call) -> Rows | None:
    return None


def encode_whole(node: Node, definitions: Mapping[int, Node]) -> Any:
    """A JSON value for a query and the views that it reads."""
    views = {str(one): encode_node(definitions[one]) for one in views_below(node, definitions)}
    return {"node": encode_node(node), "views": views}


def decode_whole(value: Any) -> tuple[Node, dict[int, Node]]:
    """The query and the views of a JSON value made by `encode_whole`."""
    return decode_node(value["node"]), {int(one): decode_node(node) for one, node in value["views"].items()}
