"""The stored form of tree patterns: JSON values in which the first element of a list is its kind."""

from __future__ import annotations

from typing import Any

from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.encode import decode_constant, encode_constant
from runnel.algebra.trees.steps import AllOf, AnyOf, Complement, Mark, NameTest, Step, TreeCondition, ValueTest


def encode_condition(condition: TreeCondition) -> Any:
    """Return a JSON value for a condition.

    >>> encode_condition(Step("//", NameTest("qty"), condition=ValueTest(">", (5.0,))))
    ['//', 'qty', [], ['>', 5.0]]
    """
    match condition:
        case Step(axis, test, marks, inner):
            encoded_marks = [[mark.form, mark.variable.name] for mark in marks]
            rest = [] if inner is None else [encode_condition(inner)]
            return [axis, _encode_name(test), encoded_marks, *rest]
        case ValueTest(relation, constants):
            return [relation, *map(encode_constant, constants)]
        case AllOf(parts):
            return ["and", *map(encode_condition, parts)]
        case AnyOf(parts):
            return ["or", *map(encode_condition, parts)]
        case Complement(part):
            return ["not", encode_condition(part)]


def decode_condition(value: Any) -> TreeCondition:
    """Return the condition of a value that `encode_condition` returned."""
    match value:
        case ["/" | "//" as axis, name, marks, *rest]:
            decoded_marks = tuple(Mark(form, Variable(variable)) for form, variable in marks)
            return Step(axis, _decode_name(name), decoded_marks, decode_condition(rest[0]) if rest else None)
        case ["and", *parts]:
            return AllOf(tuple(map(decode_condition, parts)))
        case ["or", *parts]:
            return AnyOf(tuple(map(decode_condition, parts)))
        case ["not", part]:
            return Complement(decode_condition(part))
        case [relation, *constants]:
            return ValueTest(relation, tuple(map(decode_constant, constants)))
    raise ValueError(f"unknown condition {value!r}")


def _encode_name(test: NameTest) -> Any:
    """Return the name of an element as text, and any other test as a list."""
    if test.name is not None and test.namespace is None and not test.is_attribute:
        return test.name
    return [test.name, test.namespace, int(test.is_attribute)]


def _decode_name(value: Any) -> NameTest:
    if isinstance(value, str):
        return NameTest(value)
    name, namespace, is_attribute = value
    return NameTest(name, namespace, bool(is_attribute))
