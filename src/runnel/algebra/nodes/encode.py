"""The stored form of expressions and query nodes: compact JSON values for the catalog and for plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any, cast, get_args

from runnel.algebra.nodes.attributes import Ago, Attribute, Constant, Part
from runnel.algebra.nodes.calls import (
    Argument,
    Arithmetic,
    Call,
    Constraint,
    Given,
    Literally,
    Quantity,
    Relation,
    Sign,
    Variable,
)
from runnel.algebra.nodes.expressions import (
    And,
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
)
from runnel.algebra.nodes.gate_rules import decode_rule, encode_rule
from runnel.algebra.nodes.item_patterns import ItemPattern, decode_pattern, encode_pattern
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union
from runnel.algebra.nodes.terms import Term
from runnel.algebra.nodes.window_atoms import WindowAtom, WindowRelation
from runnel.algebra.values.word_patterns import word_patterns
from runnel.algebra.values.words import words
from runnel.families import OTHER_TAGS
from runnel.model.operator import ValueType


def encode_expression(expression: Expression) -> Any:
    """Return a JSON value for an expression.

    >>> encode_expression(Contains(Attribute("title"), ("rock",)))
    ['contains', 'title', 'rock']
    """
    match expression:
        case And(parts):
            return ["and", *map(encode_expression, parts)]
        case Or(parts):
            return ["or", *map(encode_expression, parts)]
        case Not(part):
            return ["not", encode_expression(part)]
        case Truth(value):
            return value
        case Compare(attribute, operator, constant):
            return [operator, encode_attribute(attribute), encode_constant(constant)]
        case Between(attribute, low, high):
            return ["between", encode_attribute(attribute), encode_constant(low), encode_constant(high)]
        case In(attribute, constants):
            return ["in", encode_attribute(attribute), *map(encode_constant, constants)]
        case Exists(attribute):
            return ["exists", encode_attribute(attribute)]
        case Call() | Constraint() | Term():
            return encode_operators(expression)
        case ItemPattern():
            return encode_pattern(expression)
        case WindowAtom(relation, attribute, window, least):
            bound = [] if least is None else [[least.numerator, least.denominator]]
            return ["window", encode_attribute(attribute), relation, encode_attribute(window), *bound]
        case atom:
            tag, *rest = _encode_text_atom(atom)
            return [tag, encode_attribute(atom.attribute), *rest]


def _encode_text_atom(atom: TextAtom) -> list[Any]:
    match atom:
        case Contains(_, phrase):
            return ["contains", *phrase]
        case ContainsPattern(_, patterns):
            return ["pattern", *patterns]
        case ContainsStems(_, language, phrase):
            return ["stems", language, *phrase]
        case Similar(_, phrase, least):
            return ["similar", [least.numerator, least.denominator], *phrase]
        case RegularExpression(_, pattern):
            return ["matches", pattern]
        case InNetwork(_, networks):
            return ["network", *networks]
        case References(_, target):
            return ["references", target]
        case Extends(_, prefix):
            return ["extends", prefix]
        case Shares(_, links):
            return ["shares", *links]


def decode_expression(value: Any) -> Expression:
    """Return the expression of a JSON value that `encode_expression` returned."""
    if isinstance(value, bool):
        return Truth(value)
    tag, *rest = value
    match tag:
        case "and":
            return And(tuple(map(decode_expression, rest)))
        case "or":
            return Or(tuple(map(decode_expression, rest)))
        case "not":
            return Not(decode_expression(rest[0]))
        case "call" | "constraint" | "term":
            return decode_operators(tag, rest)
        case _ if tag not in OTHER_TAGS:
            return decode_pattern(tag, rest)
    attribute = decode_attribute(rest[0])
    match tag:
        case "contains":
            return Contains(attribute, _decode_phrase(rest[1:]))
        case "between":
            return Between(attribute, decode_constant(rest[1]), decode_constant(rest[2]))
        case "in":
            return In(attribute, tuple(map(decode_constant, rest[1:])))
        case "exists":
            return Exists(attribute)
        case "window":
            return cast(Expression, _decode_window_atom(attribute, rest[1:]))
        case "=" | "<" | "<=" | ">" | ">=":
            return Compare(attribute, cast(AtomRelation, tag), decode_constant(rest[1]))
        case _:
            return _decode_text_atom(tag, attribute, rest[1:])


def _decode_text_atom(tag: str, attribute: Attribute, rest: list[Any]) -> TextAtom:
    match tag:
        case "pattern":
            return ContainsPattern(attribute, _decode_phrase(rest, word_patterns))
        case "stems":
            return ContainsStems(attribute, rest[0], _decode_phrase(rest[1:]))
        case "similar":
            return Similar(attribute, tuple(dict.fromkeys(_decode_phrase(rest[1:]))), Fraction(*rest[0]))
        case "matches":
            return RegularExpression(attribute, rest[0])
        case "network":
            return InNetwork(attribute, tuple(rest))
        case "references":
            return References(attribute, rest[0])
        case "extends":
            return Extends(attribute, rest[0])
        case "shares":
            return Shares(attribute, tuple(rest))
    raise ValueError(f"unknown expression {tag!r}")


def _decode_window_atom(attribute: Attribute, rest: list[Any]) -> WindowAtom:
    match rest:
        case ["similar", window, [int(share), int(whole)]] if 0 < share <= whole:
            return WindowAtom("similar", attribute, decode_attribute(window), Fraction(share, whole))
        case [relation, window] if relation != "similar" and relation in get_args(WindowRelation):
            return WindowAtom(relation, attribute, decode_attribute(window))
    raise ValueError(f"unknown comparison with a window {rest!r}")


def _decode_phrase(phrase: list[str], split: Callable[[str], Sequence[str]] = words) -> tuple[str, ...]:
    """Return stored words as they are split today. Earlier versions kept apostrophes, and scripts without spaces."""
    if all(word.isascii() and "'" not in word for word in phrase):
        return tuple(phrase)
    return tuple(word for stored in phrase for word in split(stored) or [stored])


def encode_operators(part: Call | Constraint | Term) -> Any:
    """Return a JSON value for a call, a constraint or a term."""
    match part:
        case Call(operator, arguments, version, results):
            return ["call", operator, version, list(results), *map(_encode_quantity, arguments)]
        case Constraint(left, relation, right):
            return ["constraint", relation, _encode_quantity(left), _encode_quantity(right)]
        case Term(calls, constraints, patterns=patterns):
            parts = [[encode_operators(part) for part in group] for group in (calls, constraints)]
            return ["term", *parts, *map(encode_pattern, patterns)]


def decode_operators(tag: str, rest: list[Any]) -> Call | Constraint | Term:
    """Return the part of a JSON value that `encode_operators` returned, from its tag and its other entries."""
    if tag == "term":
        calls, constraints = ([decode_operators(part[0], part[1:]) for part in group] for group in rest[:2])
        return Term(
            tuple(call for call in calls if isinstance(call, Call)),
            tuple(constraint for constraint in constraints if isinstance(constraint, Constraint)),
            patterns=tuple(decode_pattern(name, values) for name, *values in rest[2:]),
        )
    if tag == "constraint":
        return Constraint(_decode_quantity(rest[1]), cast(Relation, rest[0]), _decode_quantity(rest[2]))
    operator, version, results, *arguments = rest
    return Call(operator, tuple(map(_decode_argument, arguments)), version, tuple(results))


def _encode_quantity(quantity: Quantity | Attribute | Given) -> Any:
    match quantity:
        case Given(name, kind):
            return ["given", name, kind]
        case Variable(name):
            return ["?", name]
        case Arithmetic(sign, left, right):
            return [sign, _encode_quantity(left), _encode_quantity(right)]
        case Literally(value):
            return ["constant", encode_constant(value)]
        case Attribute():
            return ["attribute", encode_attribute(quantity)]


def _decode_quantity(value: Any) -> Quantity:
    match value:
        case ["?", name]:
            return Variable(name)
        case ["constant", constant]:
            return Literally(decode_constant(constant))
        case [sign, left, right]:
            return Arithmetic(cast(Sign, sign), _decode_quantity(left), _decode_quantity(right))
    raise ValueError(f"unknown quantity {value!r}")


def _decode_argument(value: Any) -> Argument:
    if value[0] == "attribute":
        return decode_attribute(value[1])
    if value[0] == "given":
        return Given(value[1], cast(ValueType, value[2]))
    quantity = _decode_quantity(value)
    if isinstance(quantity, Arithmetic):
        raise ValueError(f"unknown argument {value!r}")
    return quantity


def encode_attribute(attribute: Attribute) -> Any:
    """Return a JSON value for an attribute."""
    return attribute.name if attribute.part is None else [attribute.name, attribute.part]


def decode_attribute(value: Any) -> Attribute:
    """Return the attribute of a JSON value that `encode_attribute` returned."""
    return Attribute(value) if isinstance(value, str) else Attribute(value[0], cast(Part, value[1]))


def encode_constant(constant: Constant) -> Any:
    """Return a JSON value for a constant. Dates and times become objects that name their type."""
    match constant:
        case datetime():
            return {"moment": constant.isoformat()}
        case date():
            return {"day": constant.isoformat()}
        case Ago(length):
            return {"ago": length.total_seconds()}
        case _:
            return constant


def decode_constant(value: Any) -> Constant:
    """Return the constant of a JSON value that `encode_constant` returned."""
    match value:
        case {"moment": text}:
            return datetime.fromisoformat(text).astimezone(UTC)
        case {"day": text}:
            return date.fromisoformat(text)
        case {"ago": seconds}:
            return Ago(timedelta(seconds=seconds))
        case bool() | str():
            return value
        case _:
            return float(value)


def encode_node(node: Node) -> Any:
    """Return a JSON value for a query node.

    >>> encode_node(Union((Read(1), Filter(Read(2), Truth(True)))))
    {'union': [1, {'filter': 2, 'where': True}]}
    """
    match node:
        case Read(feed):
            return feed
        case ReadAll(owner, tags):
            return {"all": owner, "tagged": list(tags)}
        case Union(inputs):
            return {"union": [encode_node(each) for each in inputs]}
        case Filter(inner, condition):
            return {"filter": encode_node(inner), "where": encode_expression(condition)}
        case Gated(inner, rule, window):
            window_field = {} if window is None else {"window": encode_node(window)}
            return {"gate": encode_rule(rule), "input": encode_node(inner), **window_field}


def decode_node(value: Any) -> Node:
    """Return the query node of a JSON value that `encode_node` returned."""
    match value:
        case int():
            return Read(value)
        case {"all": owner, "tagged": tags}:
            return ReadAll(int(owner), tuple(map(str, tags)))
        case {"union": inputs}:
            return Union(tuple(decode_node(each) for each in inputs))
        case {"filter": inner, "where": condition}:
            return Filter(decode_node(inner), decode_expression(condition))
        case {"gate": rule, "input": inner}:
            window = decode_node(value["window"]) if "window" in value else None
            return Gated(decode_node(inner), decode_rule(rule), window)
    raise ValueError(f"unknown query node {value!r}")
