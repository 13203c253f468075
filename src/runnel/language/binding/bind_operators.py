"""Binding of operator calls to registrations.

In: parsed conditions, and functions that look up operators. Out: the same conditions, in which each call has the
version of its operator and arguments of the declared types; or a StatementError.
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

FindOperator = Callable[[str], OperatorDeclaration | None]
"""Returns the current registration of an operator by its name, or None."""

ListNames = Callable[[], Iterable[str]]
"""Returns the names of all operators, for suggestions."""


def needs_binding(expression: Expression) -> bool:
    """Return whether a condition has operator calls, or variables that several parts may share.

    A pattern alone shares its variables with no other part. This runs for every condition, so it must be fast.

    >>> needs_binding(Not(Call("mobPattern"))), needs_binding(And(()))
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


def bind_conditions(conditions: Sequence[Condition], find: FindOperator, names: ListNames) -> tuple[Condition, ...]:
    """Bind the calls in the conditions of a query. Conditions cannot share variables."""
    _reject_shared_variables(conditions)
    return tuple(
        replace(condition, expression=bind_condition(condition.expression, find, names))
        if needs_binding(condition.expression)
        else condition
        for condition in conditions
    )


def bind_condition(expression: Expression, find: FindOperator, names: ListNames) -> Expression:
    """Bind the calls of a condition.

    Check that every variable is bound where it is used, and that its type is compatible with its uses.

    >>> mob = OperatorDeclaration("mob", 3, "city:mob", (Parameter("people", "result", "int"),))
    >>> bind_condition(Call("mob", (Variable("n"),)), {"mob": mob}.get, list).version
    3
    """
    bound = _bind_calls(expression, find, names)
    check_types(bound, find)
    try:
        close_condition(bound)
        if any(isinstance(leaf, ItemPattern) and leaf.open_variables() for leaf in leaves(bound)):
            alternatives(bound)  # raises an error if there are too many for bindings to be reported
    except InvalidConditionError as problem:
        spans = (part.span for part in leaves(bound) if isinstance(part, Call | ItemPattern))
        problem.span = problem.span or next(spans, None)
        raise
    return bound


def bind_node(node: Node, find: FindOperator, names: ListNames) -> Node:
    """Bind a bound query node again, to the current registrations of its operators."""
    match node:
        case Read() | ReadAll():
            return node
        case Union(inputs):
            return Union(tuple(bind_node(each, find, names) for each in inputs))
        case Filter(inner, condition):
            bound = bind_condition(condition, find, names) if needs_binding(condition) else condition
            return Filter(bind_node(inner, find, names), bound)
        case Gated(inner, rule):
            return Gated(bind_node(inner, find, names), rule)


def _bind_calls(expression: Expression, find: FindOperator, names: ListNames) -> Expression:
    match expression:
        case And(parts):
            return conjunction([_bind_calls(part, find, names) for part in parts])
        case Or(parts):
            return disjunction([_bind_calls(part, find, names) for part in parts])
        case Not(part):
            return Not(_bind_calls(part, find, names))
        case Call():
            return _bind_call(expression, find, names)
        case _:
            return expression


def _bind_call(call: Call, find: FindOperator, names: ListNames) -> Call:
    declaration = find(call.operator)
    if declaration is None:
        shown = render_name(call.operator)
        raise UnknownNameError(
            f"there is no operator {call.operator}",
            span=call.span,
            hint=did_you_mean(call.operator, names()) or f"register it first: register operator {shown}(…) from '…'",
        )
    if len(call.arguments) != len(declaration.parameters):
        count = len(declaration.parameters)
        raise _argument_error(
            call,
            declaration,
            f"{call.operator} takes {count or 'no'} argument{'' if count == 1 else 's'}, not {len(call.arguments)}",
        )
    pairs = zip(declaration.parameters, call.arguments, strict=True)
    arguments = tuple(_bind_argument(call, declaration, parameter, argument) for parameter, argument in pairs)
    results = tuple(index for index, parameter in enumerate(declaration.parameters) if parameter.role == "result")
    return replace(call, arguments=arguments, version=declaration.version, results=results)


def _bind_argument(
    call: Call, declaration: OperatorDeclaration, parameter: Parameter, argument: Argument
) -> Argument:
    match parameter.role, argument:
        case "attribute", Attribute():
            return argument
        case "attribute", Literally(str(text)):
            raise _argument_error(
                call,
                declaration,
                f"{parameter.name} takes the name of an attribute, not a text",
                f"remove the quotes: {text}",
            )
        case "attribute", _:
            raise _argument_error(call, declaration, f"{parameter.name} takes the name of an attribute")
        case "input", Variable(name, span):
            return Given(name, parameter.type, span)
        case "input", Given(name):
            # The call was bound before, possibly to another registration.
            return replace(argument, type=parameter.type)
        case "result", Given(name):
            return Variable(name, argument.span)
        case "input", Attribute(name):
            message = f"{parameter.name} is a {NOUNS[parameter.type]}, not the attribute {name}"
            raise _argument_error(
                call,
                declaration,
                message,
                f"write texts in single quotes: '{name}'" if parameter.type == "text" else None,
            )
        case "result", Variable():
            return argument
        case "result", Attribute(name):
            message = f"{parameter.name} is a result: pass a variable such as ?{parameter.name}, or a constant"
            raise _argument_error(call, declaration, message)
        case _, Literally(value):
            return Literally(_coerce_argument(call, declaration, parameter, value))
        case _:
            raise AssertionError(f"not an argument: {argument!r}")


def _coerce_argument(call: Call, declaration: OperatorDeclaration, parameter: Parameter, value: Constant) -> Constant:
    """Return a constant as a value of the parameter's type. Raise InvalidConditionError if it has another type."""
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
            raise _argument_error(
                call, declaration, f"{parameter.name} is a whole number, not {render_constant(value)}"
            )
        case "date" if isinstance(value, datetime):
            return value
        case "date" if isinstance(value, date):
            # Compared with a result, a day stands for the whole day; as an input, it is passed as its first instant.
            return value if parameter.role == "result" else datetime.combine(value, time(), UTC)
    hint = "write a date as date '2026-11-15'" if parameter.type == "date" else None
    message = f"{parameter.name} is a {NOUNS[parameter.type]}, not {render_constant(value)}"
    raise _argument_error(call, declaration, message, hint)


def _argument_error(
    call: Call, declaration: OperatorDeclaration, message: str, hint: str | None = None
) -> InvalidConditionError:
    registered = f"it was registered as {signature(declaration)}"
    return InvalidConditionError(message, span=call.span, hint=f"{hint}; {registered}" if hint else registered)


def signature(declaration: OperatorDeclaration) -> str:
    """Return the name of an operator and its parameters, as registered.

    >>> signature(OperatorDeclaration("mobPattern", 1, "city:mob", (Parameter("people", "result", "int"),)))
    'mobPattern(?people int)'
    """
    return f"{render_name(declaration.name)}{print_parameters(declaration.parameters)}"


def _reject_shared_variables(conditions: Sequence[Condition]) -> None:
    """Raise InvalidConditionError if two conditions share a variable. They filter different terms."""
    seen: set[str] = set()
    for condition in conditions:
        variables = free_variables(condition.expression)
        shared = sorted(seen & variables)
        if shared:
            raise InvalidConditionError(
                f"?{shared[0]} is used in two conditions that filter different terms of the from clause",
                span=_span_of_variable(condition.expression, shared[0]),
                hint="write both conditions inside the same brackets, or rename one of the two variables",
            )
        seen |= variables


def _span_of_variable(expression: Expression, name: str) -> Span | None:
    variables = [variable for part in parts_of(expression) for variable in variables_of(part)]
    spans = [variable.span for variable in variables if variable.name == name]
    patterns = (
        leaf for leaf in leaves(expression) if isinstance(leaf, ItemPattern) and name in leaf.open_variables()
    )
    return next(iter([*spans, *(pattern.span for pattern in patterns)]), None)
