"""The reference evaluator: slow, short, and the definition of every condition and query.

Matchers, optimizer passes and plans are tested against `holds` and `accepts`. If they differ, they are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime
from typing import Any, TypeGuard

from runnel.algebra.nodes.attributes import WHOLE, Ago, Attribute, Constant, Part
from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.expressions import (
    And,
    Atom,
    AtomRelation,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    ContainsStems,
    Exists,
    Expression,
    Extends,
    In,
    InNetwork,
    Not,
    Or,
    References,
    RegularExpression,
    Shares,
    Similar,
    TextAtom,
    Truth,
    WordAtom,
)
from runnel.algebra.nodes.item_patterns import ItemPattern, pattern_values
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union, reads, unexpanded
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.close_conditions import close_condition
from runnel.algebra.values.links import leads_to, lies_below, links_in
from runnel.algebra.values.networks import in_networks
from runnel.algebra.values.regular_expressions import occurs_in
from runnel.algebra.values.similarity import similar
from runnel.algebra.values.stems import stem_words, stems_of
from runnel.algebra.values.word_patterns import pattern_steps, runs
from runnel.algebra.values.words import contains_phrase, words
from runnel.errors import CyclicFeedsError, RunnelError
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue

Holding = Callable[[Expression, Attributes, datetime | None], bool]
"""Evaluates a condition: `holds`, or a function that knows the answers of operators (see `bindings.asking`)."""


def holds(expression: Expression, attributes: Attributes, accepted: datetime | None = None) -> bool:
    """Return whether a condition holds for an item's attributes.

    `accepted` is the time of the item's acceptance. Without it, comparisons with relative times are false.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import Contains
    >>> holds(Contains(Attribute("title"), ("rock",)), {"title": ("Rock am Ring",)})
    True
    """
    match expression:
        case And(parts):
            return all(holds(part, attributes, accepted) for part in parts)
        case Or(parts):
            return any(holds(part, attributes, accepted) for part in parts)
        case Not(part):
            return not holds(part, attributes, accepted)
        case Truth(value):
            return value
        case ItemPattern():
            return any(map(expression.holds, pattern_values(expression, attributes)))
        case Call() | Constraint() | Term():
            raise RunnelError("a condition with operators cannot be evaluated without their answers")
        case atom:
            return any(satisfies(atom, value, accepted) for _, value in values_of(atom.attribute, attributes))


def holds_as_written(expression: Expression, attributes: Attributes, accepted: datetime | None = None) -> bool:
    """Return whether a condition holds, after closing it: its item patterns may share variables with other parts."""
    return holds(close_condition(expression), attributes, accepted)


def values_of(attribute: Attribute, attributes: Attributes) -> list[tuple[str, Value]]:
    """Return the values of an atom's attribute with their attribute names, or an empty list if there are none.

    >>> values_of(WHOLE, {"title": ("Rock",), "price": (3.0, 4.0)})
    [('title', 'Rock'), ('price', 3.0), ('price', 4.0)]
    """
    if attribute.name == WHOLE.name:
        values = [(name, value) for name, several in attributes.items() for value in several]
    else:
        values = [(attribute.name, value) for value in attributes.get(attribute.name, ())]
    if attribute.part is None:
        return values
    return [(name, part_of(value, attribute.part)) for name, value in values if isinstance(value, datetime)]


def satisfies(atom: Atom, value: Value, accepted: datetime | None = None) -> bool:
    """Return whether one value satisfies an atom."""
    match atom:
        case Exists():
            return True
        case Compare(_, operator, constant):
            return compare(value, operator, constant, accepted)
        case Between(_, low, high):
            return compare(value, ">=", low, accepted) and compare(value, "<=", high, accepted)
        case In(_, constants):
            return any(compare(value, "=", constant, accepted) for constant in constants)
        case ItemPattern():
            return atom.holds(value)
        case text_atom:
            return is_text(value) and _satisfied_by_text(text_atom, value)


def is_text(value: Value) -> TypeGuard[str]:
    """Return whether a value is a text. Structured values are not, although they are subclasses of `str`."""
    return isinstance(value, str) and not isinstance(value, StructuredValue)


def _satisfied_by_text(atom: TextAtom, text: str) -> bool:
    match atom:
        case RegularExpression(_, pattern):
            return occurs_in(pattern, text)
        case InNetwork(_, networks):
            return in_networks(text, networks)
        case References(_, target):
            return any(leads_to(link, target) for link in links_in(text))
        case Extends(_, prefix):
            return any(lies_below(link, prefix) for link in links_in(text))
        case Shares(_, links):
            return any(link.url in links for link in links_in(text))
        case word_atom:
            return satisfied_by_words(word_atom, words(text))


def satisfied_by_words(atom: WordAtom, text_words: list[str]) -> bool:
    """Return whether a text satisfies an atom on its words. `text_words` are the words of the text.

    >>> satisfied_by_words(ContainsPattern(WHOLE, ("conc*",)), ["rock", "concert"])
    True
    """
    match atom:
        case Contains(_, phrase):
            return contains_phrase(text_words, phrase)
        case ContainsPattern(_, patterns):
            return any(True for _ in runs(text_words, pattern_steps(patterns)))
        case ContainsStems(_, language, phrase):
            return contains_phrase(stem_words(language, text_words), stems_of(language, phrase))
        case Similar(_, phrase, least):
            return similar(phrase, text_words, least)


def compare(value: Value, operator: AtomRelation, constant: Constant, accepted: datetime | None = None) -> bool:
    """Compare a value with a constant. The result is false if they are of different types.

    A day is compared with the UTC day of a time, so `<= date '2026-11-15'` includes the evening of that day.

    >>> compare(3.0, "<", 4.0), compare("3", "<", 4.0)
    (True, False)
    """
    if isinstance(constant, Ago):
        if accepted is None:
            return False
        constant = moment_before(accepted, constant)
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


def moment_before(accepted: datetime, ago: Ago) -> datetime:
    """Return the absolute time of a relative time, for an item that was accepted at `accepted`."""
    try:
        return accepted - ago.length
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _comparable(value: Value, constant: Constant) -> tuple[Any, Any] | None:
    if isinstance(value, bool) or isinstance(constant, bool):
        return (value, constant) if isinstance(value, bool) and isinstance(constant, bool) else None
    if isinstance(value, datetime):
        if isinstance(constant, datetime):
            return value, constant
        return (value.date(), constant) if isinstance(constant, date) else None
    if isinstance(value, str):
        return (value, constant) if isinstance(constant, str) and is_text(value) else None
    return (value, constant) if isinstance(constant, int | float) else None


def part_of(moment: datetime, part: Part) -> float:
    """Return a part of a time as a number."""
    return float(moment.isoweekday() if part == "weekday" else getattr(moment, part))


def accepts(
    node: Node,
    feed: int,
    attributes: Attributes,
    definitions: Mapping[int, Node],
    accepted: datetime | None = None,
    stopped: Collection[int] = (),
    holding: Holding = holds_as_written,
) -> bool:
    """Return whether an item of the source feed `feed` is in the output of a query node.

    `definitions` has the nodes of the virtual feeds; all other feeds are source feeds. A union contains the items of
    any of its inputs (RoSeS §3.2). `stopped` are the feeds whose gates stopped the item, which depends on earlier
    items (see `evaluate_log`).

    >>> accepts(Union((Read(1), Read(2))), 2, {}, {})
    True
    """
    inside: dict[int, bool] = {}
    for view in views_below(node, definitions):
        reached = _reaches(definitions[view], feed, attributes, inside, accepted, holding)
        inside[view] = reached and view not in stopped
    return _reaches(node, feed, attributes, inside, accepted, holding)


def _reaches(
    node: Node,
    feed: int,
    attributes: Attributes,
    inside: Mapping[int, bool],
    accepted: datetime | None,
    holding: Holding,
) -> bool:
    """Return what `accepts` returns. `inside` tells for each view that the node reads whether it has the item."""
    match node:
        case Read(read):
            return inside.get(read, read == feed)
        case ReadAll():
            raise unexpanded(node)
        case Union(inputs):
            return any(_reaches(each, feed, attributes, inside, accepted, holding) for each in inputs)
        case Filter(inner, condition):
            reached = _reaches(inner, feed, attributes, inside, accepted, holding)
            return reached and holding(condition, attributes, accepted)
        case Gated(inner, _):
            return _reaches(inner, feed, attributes, inside, accepted, holding)


def views_below(node: Node, definitions: Mapping[int, Node]) -> list[int]:
    """Return the virtual feeds that a node reads, directly or indirectly. Each comes after the feeds that it reads.

    >>> views_below(Read(3), {2: Read(1), 3: Read(2)})
    [2, 3]
    """
    order: dict[int, None] = {}
    entered: set[int] = set()
    waiting = [feed for feed in reads(node) if feed in definitions]
    while waiting:  # not recursive, because a chain of views may be longer than Python's stack
        view = waiting[-1]
        below = [feed for feed in reads(definitions[view]) if feed in definitions and feed not in order]
        if view in order or not below:
            order[view] = None
            waiting.pop()
        elif view in entered:
            raise CyclicFeedsError(f"the feed {view} reads itself")
        else:
            entered.add(view)
            waiting.extend(below)
    return list(order)
