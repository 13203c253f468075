"""Comparison of the value of a node with constants.

A node has a text. It also is a number if the text is written as one (in JSON: if the value is a number), and a date
if the text is an ISO 8601 date. A constant is compared with the value of its own type, so that `[. > 5]` is false for
texts. Truth values are compared as the texts `true` and `false`.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import lru_cache
from typing import Any, cast

from runnel.algebra.nodes.attributes import Constant
from runnel.algebra.trees.steps import ValueTest
from runnel.algebra.values.regular_expressions import occurs_in
from runnel.algebra.values.words import contains_phrase, words
from runnel.model.item import moment
from runnel.model.trees.tree_nodes import TreeNodes

_MAX_DATE = 40
"""Maximum number of characters of a date."""


def satisfies_test(test: ValueTest, nodes: TreeNodes, node: int) -> bool:
    """Return whether the value of a node satisfies a test.

    >>> from runnel.model.trees.document_tree import DocumentTree
    >>> from runnel.model.trees.tree_nodes import nodes_of
    >>> nodes = nodes_of(DocumentTree.read("<qty> 7.0 </qty>"))
    >>> satisfies_test(ValueTest("=", (7.0,)), nodes, 0), satisfies_test(ValueTest("=", ("7",)), nodes, 0)
    (True, False)
    """
    match test.relation:
        case "contains":
            return contains_phrase(words(nodes.text(node)), _phrase(cast(str, test.constants[0])))
        case "matches":
            return occurs_in(cast(str, test.constants[0]), nodes.text(node))
        case "in":
            return any(_compares(nodes, node, "=", constant) for constant in test.constants)
        case "between":
            low, high = test.constants
            return _compares(nodes, node, ">=", low) and _compares(nodes, node, "<=", high)
        case relation:
            return _compares(nodes, node, relation, test.constants[0])


@lru_cache(maxsize=1024)
def _phrase(text: str) -> tuple[str, ...]:
    return tuple(words(text))


def _compares(nodes: TreeNodes, node: int, relation: str, constant: Constant) -> bool:
    pair = _comparable(nodes, node, constant)
    if pair is None:
        return False
    left, right = pair
    match relation:
        case "=":
            return bool(left == right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def _comparable(nodes: TreeNodes, node: int, constant: Constant) -> tuple[Any, Any] | None:
    """Return the value of a node in the type of a constant, and the constant, or None if there is no such value."""
    match constant:
        case bool():
            return nodes.text(node), str(constant).lower()
        case str():
            return nodes.text(node), constant
        case datetime():
            time = _time(nodes.text(node))
            return None if time is None else (time, constant)
        case date():
            time = _time(nodes.text(node))
            return None if time is None else (time.date(), constant)
        case _:
            number = nodes.number(node)
            return None if number is None else (number, constant)


def _time(text: str) -> datetime | None:
    if len(text) > _MAX_DATE:
        return None
    try:
        return moment(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None
