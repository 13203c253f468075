"""Types of what operators find, checked where they are compared. In: a bound condition. Out: nothing, or a refusal.

What never holds is refused: a text that is to be above a number, two results of different types under one variable,
or a calculation with texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date

from runnel.algebra.nodes.attributes import Ago, Constant
from runnel.algebra.nodes.calls import Arithmetic, Call, Constraint, Literally, Quantity, Variable, variables_of
from runnel.algebra.nodes.expressions import And, Expression, Not, Or
from runnel.algebra.nodes.render import render_operators
from runnel.errors import InvalidConditionError
from runnel.model.operator import VALUE_TYPES, OperatorDeclaration, ValueType

NOUNS: Mapping[ValueType, str] = {
    "text": "text",
    "number": "number",
    "int": "whole number",
    "boolean": "truth value",
    "date": "date",
}

_Types = dict[str, set[ValueType]]
"""The types that a variable may have, by its name."""


def check_types(expression: Expression, find: Callable[[str], OperatorDeclaration | None]) -> None:
    """Refuse comparisons that never hold. Variables under `not` are local there."""
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        waiting += _negated(one)
        types: _Types = {}
        for part in parts_of(one):
            if isinstance(part, Call):
                for variable, kind in _typed(part, find):
                    types.setdefault(variable.name, set()).add(kind)
        _check_joins(one, find)
        for part in parts_of(one):
            if isinstance(part, Constraint):
                _check_constraint(part, types)


def parts_of(expression: Expression, *, with_negated: bool = False) -> Iterator[Call | Constraint]:
    """The calls and constraints of a condition, from left to right; those under `not` only if they are asked for."""
    stack = [expression]
    while stack:
        match stack.pop():
            case And(parts) | Or(parts):
                stack.extend(reversed(parts))
            case Not(part) if with_negated:
                stack.append(part)
            case Call() | Constraint() as part:
                yield part
            case _:
                pass


def _negated(expression: Expression) -> Iterator[Expression]:
    """The parts directly under `not`."""
    stack = [expression]
    while stack:
        match stack.pop():
            case And(parts) | Or(parts):
                stack.extend(parts)
            case Not(part):
                yield part
            case _:
                pass


def _typed(call: Call, find: Callable[[str], OperatorDeclaration | None]) -> Iterator[tuple[Variable, ValueType]]:
    """The variables that a bound call gives values, with the types of these."""
    found = find(call.operator)
    if found is not None:
        for place in call.results:
            argument = call.arguments[place]
            if isinstance(argument, Variable):
                yield argument, found.parameters[place].type


def _check_joins(expression: Expression, find: Callable[[str], OperatorDeclaration | None]) -> None:
    """Refuse calls of one conjunction that give a variable values of two types: they never meet."""
    stack = [expression]
    while stack:
        match stack.pop():
            case And(parts):
                stack.extend(part for part in parts if not isinstance(part, Call))
                _check_together([part for part in parts if isinstance(part, Call)], find)
            case Or(parts):
                stack.extend(parts)
            case Call() as call:
                _check_together([call], find)
            case _:
                pass


def _check_together(calls: Iterable[Call], find: Callable[[str], OperatorDeclaration | None]) -> None:
    first: dict[str, tuple[ValueType, str]] = {}
    for call in calls:
        for variable, kind in _typed(call, find):
            before, operator = first.setdefault(variable.name, (kind, call.operator))
            if _family(before) != _family(kind):
                raise InvalidConditionError(
                    f"?{variable.name} would be a {NOUNS[before]} for {operator} and a {NOUNS[kind]} for "
                    f"{call.operator}",
                    span=variable.place,
                    hint="give one of them another name",
                )


def _check_constraint(constraint: Constraint, types: _Types) -> None:
    left, right = _types_of(constraint.left, types), _types_of(constraint.right, types)
    if {_family(one) for one in left}.isdisjoint(_family(one) for one in right):
        raise _never(
            constraint, f"a {NOUNS[min(left)]} is compared with a {NOUNS[min(right)]}", "compare values of one type"
        )
    whole = next((one for one in (left, right) if one == {"int"}), None)
    constant = constraint.right if isinstance(constraint.right, Literally) else None
    if constraint.relation in ("=", "!=") and whole and constant is not None and constant.value != _rounded(constant):
        raise _never(constraint, "a whole number is compared with a fraction", "compare it with < or >")


def _rounded(constant: Literally) -> Constant:
    value = constant.value
    return float(int(value)) if isinstance(value, float) else value


def _types_of(one: Quantity, types: _Types) -> set[ValueType]:
    match one:
        case Variable(name):
            return types.get(name) or set(VALUE_TYPES)
        case Literally(value):
            return {_type_of(value)}
        case Arithmetic(_, left, right):
            for operand in (left, right):
                possible = _types_of(operand, types)
                if not possible & {"number", "int"}:
                    shown = render_operators(Constraint(operand, "=", operand)).partition(" = ")[0]
                    raise InvalidConditionError(
                        f"{shown} is a {NOUNS[min(possible)]}, and only numbers can be computed with",
                        span=next((variable.place for variable in variables_of(one)), None),
                    )
            return {"number"}


def _type_of(value: Constant) -> ValueType:
    match value:
        case bool():
            return "boolean"
        case str():
            return "text"
        case date() | Ago():
            return "date"
        case _:
            return "number"


def _family(one: ValueType) -> ValueType:
    return "number" if one == "int" else one


def _never(constraint: Constraint, why: str, hint: str) -> InvalidConditionError:
    return InvalidConditionError(
        f"{render_operators(constraint)} says nothing: {why}",
        span=next((one.place for one in variables_of(constraint)), None),
        hint=hint,
    )
