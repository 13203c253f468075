"""Type checks for the results of operators. In: a bound condition. Out: an InvalidConditionError if it cannot hold.

Rejected are comparisons of different types, such as a text with a number; a variable that two calls bind to results
of different types; and calculations with anything but numbers.
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
"""The possible types of variables, by name."""


def check_types(expression: Expression, find: Callable[[str], OperatorDeclaration | None]) -> None:
    """Raise InvalidConditionError for comparisons that never hold. Variables under `not` are local to it."""
    waiting = [expression]
    while waiting:
        scope = waiting.pop()
        waiting += _negated_parts(scope)
        types: _Types = {}
        for part in parts_of(scope):
            if isinstance(part, Call):
                for variable, kind in _result_types(part, find):
                    types.setdefault(variable.name, set()).add(kind)
        _check_conjunctions(scope, find)
        for part in parts_of(scope):
            if isinstance(part, Constraint):
                _check_constraint(part, types)


def parts_of(expression: Expression, *, with_negated: bool = False) -> Iterator[Call | Constraint]:
    """Yield the calls and constraints of a condition from left to right, those under `not` only `with_negated`."""
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


def _negated_parts(expression: Expression) -> Iterator[Expression]:
    """Yield the operands of the outermost `not` expressions."""
    stack = [expression]
    while stack:
        match stack.pop():
            case And(parts) | Or(parts):
                stack.extend(parts)
            case Not(part):
                yield part
            case _:
                pass


def _result_types(
    call: Call, find: Callable[[str], OperatorDeclaration | None]
) -> Iterator[tuple[Variable, ValueType]]:
    """Yield the variables that a bound call binds, with their types."""
    declaration = find(call.operator)
    if declaration is not None:
        for index in call.results:
            argument = call.arguments[index]
            if isinstance(argument, Variable):
                yield argument, declaration.parameters[index].type


def _check_conjunctions(expression: Expression, find: Callable[[str], OperatorDeclaration | None]) -> None:
    """Raise InvalidConditionError if calls of a conjunction bind a variable to two types, which are never equal."""
    stack = [expression]
    while stack:
        match stack.pop():
            case And(parts):
                stack.extend(part for part in parts if not isinstance(part, Call))
                _check_shared_variables([part for part in parts if isinstance(part, Call)], find)
            case Or(parts):
                stack.extend(parts)
            case Call() as call:
                _check_shared_variables([call], find)
            case _:
                pass


def _check_shared_variables(calls: Iterable[Call], find: Callable[[str], OperatorDeclaration | None]) -> None:
    first: dict[str, tuple[ValueType, str]] = {}
    for call in calls:
        for variable, kind in _result_types(call, find):
            first_kind, operator = first.setdefault(variable.name, (kind, call.operator))
            if _comparable_type(first_kind) != _comparable_type(kind):
                raise InvalidConditionError(
                    f"?{variable.name} would be a {NOUNS[first_kind]} for {operator} and a {NOUNS[kind]} for "
                    f"{call.operator}",
                    span=variable.span,
                    hint="use different variables for the two results",
                )


def _check_constraint(constraint: Constraint, types: _Types) -> None:
    left, right = _types_of(constraint.left, types), _types_of(constraint.right, types)
    if {_comparable_type(kind) for kind in left}.isdisjoint(_comparable_type(kind) for kind in right):
        raise _impossible_error(
            constraint, f"a {NOUNS[min(left)]} is compared with a {NOUNS[min(right)]}", "compare values of one type"
        )
    has_integer = {"int"} in (left, right)
    constant = constraint.right if isinstance(constraint.right, Literally) else None
    is_equality = constraint.relation in ("=", "!=")
    if is_equality and has_integer and constant is not None and constant.value != _truncate(constant):
        raise _impossible_error(constraint, "a whole number never equals a fraction", "use < or >")


def _truncate(constant: Literally) -> Constant:
    value = constant.value
    return float(int(value)) if isinstance(value, float) else value


def _types_of(quantity: Quantity, types: _Types) -> set[ValueType]:
    match quantity:
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
                        f"{shown} is a {NOUNS[min(possible)]}, but calculations need numbers",
                        span=next((variable.span for variable in variables_of(quantity)), None),
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


def _comparable_type(kind: ValueType) -> ValueType:
    return "number" if kind == "int" else kind


def _impossible_error(constraint: Constraint, reason: str, hint: str) -> InvalidConditionError:
    return InvalidConditionError(
        f"{render_operators(constraint)} has the same result for every value: {reason}",
        span=next((variable.span for variable in variables_of(constraint)), None),
        hint=hint,
    )
