"""Calls to registrations. In: conditions as parsed, and what operators there are. Out: the same conditions with calls
that know the version they ask, and whose arguments fit its parameters; or why there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time

from runnel.algebra.nodes.attributes import Attribute, Constant
from runnel.algebra.nodes.calls import Argument, Call, Constraint, Given, Literally, Variable, variables_of
from runnel.algebra.nodes.expressions import And, Expression, Not, Or, conjunction, disjunction
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union
from runnel.algebra.nodes.render import render_constant, render_name
from runnel.algebra.semantics.close_conditions import alternatives, close_condition, free_variables, leaves
from runnel.errors import InvalidConditionError, Span, UnknownNameError
from runnel.language.binding.result_types import NOUNS, check_types, parts_of
from runnel.language.nearest import did_you_mean
from runnel.language.printing import print_parameters
from runnel.language.syntax.statements import Condition
from runnel.model.operator import OperatorDeclaration, Parameter

OperatorNamed = Callable[[str], OperatorDeclaration | None]
"""The live registration of an operator's name."""

Names = Callable[[], Iterable[str]]


def asks_operators(expression: Expression) -> bool:
    """Whether operators, or variables that lead from one part to another, take part in a condition.

    It is called for every condition. A pattern alone shares its variables with nothing.

    >>> asks_operators(Not(Call("mobPattern"))), asks_operators(And(()))
    (True, False)
    """
    return _has_variables(expression) and not isinstance(expression, ItemPattern)


def _has_variables(expression: Expression) -> bool:
    kind = type(expression)
    if kind is And or kind is Or:
        return any(map(_has_variables, expression.parts))  # type: ignore[union-attr]
    if kind is Not:
        return _has_variables(expression.part)  # type: ignore[union-attr]
    return kind is Call or kind is Constraint or isinstance(expression, ItemPattern)


def bind_conditions(conditions: Sequence[Condition], find: OperatorNamed, names: Names) -> tuple[Condition, ...]:
    """The conditions of a query with their calls bound. Each has variables of its own."""
    _refuse_shared(conditions)
    return tuple(
        replace(one, expression=bind_condition(one.expression, find, names))
        if asks_operators(one.expression)
        else one
        for one in conditions
    )


def bind_condition(expression: Expression, find: OperatorNamed, names: Names) -> Expression:
    """A condition with its calls bound; every variable has a value where it is used, and of a fitting type.

    >>> mob = OperatorDeclaration("mob", 3, "city:mob", (Parameter("people", "result", "int"),))
    >>> bind_condition(Call("mob", (Variable("n"),)), {"mob": mob}.get, list).version
    3
    """
    bound = _bound(expression, find, names)
    check_types(bound, find)
    try:
        close_condition(bound)
        if any(isinstance(leaf, ItemPattern) and leaf.open_variables() for leaf in leaves(bound)):
            alternatives(bound)  # refuses more of them than bindings are told of
    except InvalidConditionError as problem:
        parts = (part for part in leaves(bound) if isinstance(part, Call | ItemPattern))
        problem.span = problem.span or next((one.place for one in parts), None)
        raise
    return bound


def bind_node(node: Node, find: OperatorNamed, names: Names) -> Node:
    """A query node that is bound already, bound again to what its operators are now."""
    match node:
        case Read() | ReadAll():
            return node
        case Union(inputs):
            return Union(tuple(bind_node(one, find, names) for one in inputs))
        case Filter(inner, condition):
            asks = asks_operators(condition)
            return Filter(
                bind_node(inner, find, names), bind_condition(condition, find, names) if asks else condition
            )
        case Gated(inner, rule):
            return Gated(bind_node(inner, find, names), rule)


def _bound(expression: Expression, find: OperatorNamed, names: Names) -> Expression:
    match expression:
        case And(parts):
            return conjunction([_bound(part, find, names) for part in parts])
        case Or(parts):
            return disjunction([_bound(part, find, names) for part in parts])
        case Not(part):
            return Not(_bound(part, find, names))
        case Call():
            return _bound_call(expression, find, names)
        case _:
            return expression


def _bound_call(call: Call, find: OperatorNamed, names: Names) -> Call:
    found = find(call.operator)
    if found is None:
        shown = render_name(call.operator)
        raise UnknownNameError(
            f"there is no operator {call.operator}",
            span=call.place,
            hint=did_you_mean(call.operator, names()) or f"register it first: register operator {shown}(…) from '…'",
        )
    if len(call.arguments) != len(found.parameters):
        wanted = len(found.parameters)
        raise _unfitting(
            call,
            found,
            f"{call.operator} takes {wanted or 'no'} argument{'' if wanted == 1 else 's'}, not {len(call.arguments)}",
        )
    pairs = zip(found.parameters, call.arguments, strict=True)
    arguments = tuple(_bound_argument(call, found, parameter, argument) for parameter, argument in pairs)
    results = tuple(place for place, one in enumerate(found.parameters) if one.role == "result")
    return replace(call, arguments=arguments, version=found.version, results=results)


def _bound_argument(call: Call, found: OperatorDeclaration, parameter: Parameter, argument: Argument) -> Argument:
    match parameter.role, argument:
        case "attribute", Attribute():
            return argument
        case "attribute", Literally(str(text)):
            raise _unfitting(
                call, found, f"{parameter.name} is an attribute of the item, not a text", f"write {text}"
            )
        case "attribute", _:
            raise _unfitting(call, found, f"{parameter.name} is an attribute of the item: write its name")
        case "input", Variable(name, place):
            return Given(name, parameter.type, place)
        case "input", Given(name):
            # Bound before, perhaps to another registration.
            return replace(argument, type=parameter.type)
        case "result", Given(name):
            return Variable(name, argument.place)
        case "input", Attribute(name):
            message = f"{parameter.name} is a {NOUNS[parameter.type]}, not the attribute {name}"
            raise _unfitting(
                call,
                found,
                message,
                f"texts are written in single quotes: '{name}'" if parameter.type == "text" else None,
            )
        case "result", Variable():
            return argument
        case "result", Attribute(name):
            message = f"{parameter.name} is a result: bind it to a variable such as ?{parameter.name}, or compare it"
            raise _unfitting(call, found, message)
        case _, Literally(value):
            return Literally(_fitting(call, found, parameter, value))
        case _:
            raise AssertionError(f"no argument: {argument!r}")


def _fitting(call: Call, found: OperatorDeclaration, parameter: Parameter, value: Constant) -> Constant:
    """The constant as a parameter takes it."""
    match parameter.type:
        case "text" if isinstance(value, str):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case "number" if isinstance(value, float):
            return value
        case "int" if isinstance(value, float):
            if value == int(value):
                return value
            raise _unfitting(call, found, f"{parameter.name} is a whole number, not {render_constant(value)}")
        case "date" if isinstance(value, datetime):
            return value
        case "date" if isinstance(value, date):
            # As a result a day is all of it; what an operator is given is an instant.
            return value if parameter.role == "result" else datetime.combine(value, time(), UTC)
    hint = "write it as date '2026-11-15'" if parameter.type == "date" else None
    message = f"{parameter.name} is a {NOUNS[parameter.type]}, not {render_constant(value)}"
    raise _unfitting(call, found, message, hint)


def _unfitting(
    call: Call, found: OperatorDeclaration, message: str, hint: str | None = None
) -> InvalidConditionError:
    registered = f"it was registered as {signature(found)}"
    return InvalidConditionError(message, span=call.place, hint=f"{hint}; {registered}" if hint else registered)


def signature(declaration: OperatorDeclaration) -> str:
    """An operator with its parameters, as it was registered.

    >>> signature(OperatorDeclaration("mobPattern", 1, "city:mob", (Parameter("people", "result", "int"),)))
    'mobPattern(?people int)'
    """
    return f"{render_name(declaration.name)}{print_parameters(declaration.parameters)}"


def _refuse_shared(conditions: Sequence[Condition]) -> None:
    """Conditions of one query filter different terms, so no variable leads from one to another."""
    seen: set[str] = set()
    for condition in conditions:
        variables = free_variables(condition.expression)
        shared = sorted(seen & variables)
        if shared:
            raise InvalidConditionError(
                f"?{shared[0]} stands in two conditions that filter different things",
                span=_place_of(condition.expression, shared[0]),
                hint="put all that is said of it into one pair of brackets, or give one of them another name",
            )
        seen |= variables


def _place_of(expression: Expression, name: str) -> Span | None:
    found = [one.place for part in parts_of(expression) for one in variables_of(part) if one.name == name]
    patterns = (one for one in leaves(expression) if isinstance(one, ItemPattern) and name in one.open_variables())
    return next(iter([*found, *(one.place for one in patterns)]), None)
