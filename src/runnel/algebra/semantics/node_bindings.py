"""The reference semantics of a query's bindings, for queries without operators.

In: the node of a query, the views it reads, and an item. Out: the bindings of the variables in the query's own
conditions, for every input of a union that contains the item. Variables of views are not included.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from runnel.algebra.nodes.calls import Call
from runnel.algebra.nodes.encode import decode_node, encode_node
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union
from runnel.algebra.semantics.bindings import PatternRows, ReferencePatternSearch, distinct, joined, solutions
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
    """Return the bindings of a query on an item of the source feed `feed`, or an empty list if it does not match.

    >>> from runnel.algebra.nodes.expressions import Truth
    >>> node_solutions(Filter(Read(1), Truth(True)), 1, {}, {}), node_solutions(Read(1), 2, {}, {})
    ([{}], [])
    """
    bindings = distinct(
        _solve(node, feed, attributes, definitions, accepted, rows_of or ReferencePatternSearch(attributes).rows)
    )
    return [binding for binding in bindings if binding] or bindings


def _solve(
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
            return [row for each in inputs for row in _solve(each, feed, attributes, definitions, accepted, rows_of)]
        case Gated(inner, _):
            return _solve(inner, feed, attributes, definitions, accepted, rows_of)
        case Filter(inner, condition):
            bindings: list[dict[str, Value]] = []
            condition_bindings = solutions(condition, attributes, _no_answer, accepted, rows_of)
            for row in _solve(inner, feed, attributes, definitions, accepted, rows_of):
                # The inputs of a union may bind different variables, so each row is joined separately.
                bindings += joined([row], condition_bindings)
            return bindings


def _no_answer(call: Call) -> Rows | None:
    return None


def encode_whole(node: Node, definitions: Mapping[int, Node]) -> Any:
    """Return a JSON value for a query and the views that it reads."""
    views = {str(view): encode_node(definitions[view]) for view in views_below(node, definitions)}
    return {"node": encode_node(node), "views": views}


def decode_whole(value: Any) -> tuple[Node, dict[int, Node]]:
    """Return the query and the views of a JSON value that `encode_whole` returned."""
    return decode_node(value["node"]), {int(view): decode_node(node) for view, node in value["views"].items()}
