"""The reference evaluator: slow, short, and the definition of every condition and query.

Matchers, optimiser passes and plans are tested against `holds` and `accepts`; where they differ, they are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from runnel.algebra.expressions import (
    And,
    Attribute,
    Between,
    Compare,
    Constant,
    Contains,
    Exists,
    Expression,
    In,
    Not,
    Operator,
    Or,
    Part,
    Truth,
)
from runnel.algebra.query import Filter, Node, Read, Union, reads
from runnel.algebra.text import contains_phrase, words
from runnel.errors import CyclicFeeds
from runnel.model.item import Attributes, Value


def holds(expression: Expression, attributes: Attributes) -> bool:
    """Whether a condition holds for an item's attributes.

    >>> from runnel.algebra.expressions import Attribute, Contains
    >>> holds(Contains(Attribute("title"), ("rock",)), {"title": ("Rock am Ring",)})
    True
    """
    match expression:
        case And(parts):
            return all(holds(part, attributes) for part in parts)
        case Or(parts):
            return any(holds(part, attributes) for part in parts)
        case Not(part):
            return not holds(part, attributes)
        case Truth(value):
            return value
        case atom:
            return any(satisfies(atom, value) for value in values_of(atom.attribute, attributes))


def values_of(attribute: Attribute, attributes: Attributes) -> list[Value]:
    """The values that an atom looks at: none where the attribute, or the part, is missing."""
    values = attributes.get(attribute.name, ())
    if attribute.part is None:
        return list(values)
    return [_part_of(value, attribute.part) for value in values if isinstance(value, datetime)]


def satisfies(atom: Contains | Compare | Between | In | Exists, value: Value) -> bool:
    """Whether one value satisfies an atom."""
    match atom:
        case Contains(_, phrase):
            return isinstance(value, str) and contains_phrase(words(value), phrase)
        case Compare(_, operator, constant):
            return compare(value, operator, constant)
        case Between(_, low, high):
            return compare(value, ">=", low) and compare(value, "<=", high)
        case In(_, constants):
            return any(compare(value, "=", constant) for constant in constants)
        case Exists():
            return True


def compare(value: Value, operator: Operator, constant: Constant) -> bool:
    """Compare values of one type; values of two types stand in no relation.

    A whole day compares with the UTC day of a moment, so `<= date '2026-11-15'` includes that day's evening.

    >>> compare(3.0, "<", 4.0), compare("3", "<", 4.0)
    (True, False)
    """
    pair = _comparable(value, constant)
    if pair is None:
        return False
    left, right = pair
    match operator:
        case "=":
            return bool(left == right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case ">=":
            return bool(left >= right)


def _comparable(value: Value, constant: Constant) -> tuple[Any, Any] | None:
    if isinstance(value, bool) or isinstance(constant, bool):
        return (value, constant) if isinstance(value, bool) and isinstance(constant, bool) else None
    if isinstance(value, datetime):
        if isinstance(constant, datetime):
            return value, constant
        return (value.date(), constant) if isinstance(constant, date) else None
    if isinstance(value, str):
        return (value, constant) if isinstance(constant, str) else None
    return (value, constant) if isinstance(constant, int | float) else None


def _part_of(moment: datetime, part: Part) -> float:
    return float(moment.isoweekday() if part == "weekday" else getattr(moment, part))


def accepts(node: Node, feed: int, attributes: Attributes, definitions: Mapping[int, Node]) -> bool:
    """Whether an item of the source feed `feed` reaches the output of a query node.

    `definitions` holds the nodes of the virtual feeds; a feed that is not in it is a source feed. If an item
    comes by several ways, any accepting way suffices (RoSeS §3.2, union).

    >>> accepts(Union((Read(1), Read(2))), 2, {}, {})
    True
    """
    inside: dict[int, bool] = {}
    for view in views_below(node, definitions):
        inside[view] = _reaches(definitions[view], feed, attributes, inside)
    return _reaches(node, feed, attributes, inside)


def _reaches(node: Node, feed: int, attributes: Attributes, inside: Mapping[int, bool]) -> bool:
    """As `accepts`, where it is known which of the views that the node reads hold the item."""
    match node:
        case Read(read):
            return inside.get(read, read == feed)
        case Union(inputs):
            return any(_reaches(one, feed, attributes, inside) for one in inputs)
        case Filter(inner, condition):
            return _reaches(inner, feed, attributes, inside) and holds(condition, attributes)


def views_below(node: Node, definitions: Mapping[int, Node]) -> list[int]:
    """The virtual feeds that a node reads, directly or through others, each after all that it reads itself.

    >>> views_below(Read(3), {2: Read(1), 3: Read(2)})
    [2, 3]
    """
    order: dict[int, None] = {}
    entered: set[int] = set()
    waiting = [one for one in reads(node) if one in definitions]
    while waiting:  # a chain of views may be longer than Python's stack is deep
        view = waiting[-1]
        below = [one for one in reads(definitions[view]) if one in definitions and one not in order]
        if view in order or not below:
            order[view] = None
            waiting.pop()
        elif view in entered:
            raise CyclicFeeds(f"the feed {view} reads itself")
        else:
            entered.add(view)
            waiting.extend(below)
    return list(order)
