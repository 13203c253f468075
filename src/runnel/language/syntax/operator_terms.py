"""Construction of operator calls and of comparisons of their results.

In: variables, constants with their tokens, attributes. Out: calls and constraints in canonical form: variables are on
the left of constants, and `between` and `in` are expanded into comparisons. Binding checks later whether an operator
exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from runnel.algebra.nodes.attributes import WHOLE, Ago
from runnel.algebra.nodes.calls import (
    Argument,
    Arithmetic,
    Call,
    Constraint,
    Literally,
    Quantity,
    Relation,
    Sign,
    Variable,
    variables_of,
)
from runnel.algebra.nodes.expressions import Expression, conjunction, disjunction
from runnel.algebra.nodes.render import render_attribute, render_quantity
from runnel.algebra.semantics.bindings import evaluate_quantity
from runnel.errors import InvalidConditionError, Span, StatementSyntaxError
from runnel.language.syntax.conditions import arithmetic_depth, check_order
from runnel.language.syntax.literals import Literal, LocatedAttribute
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import Name

ParsedQuantity = Literal | Variable | Arithmetic
"""A quantity as the parser returns it; a constant still has its token."""

MAX_ARGUMENTS = 32
"""How many arguments a call may have."""
MAX_ARITHMETIC_DEPTH = 20
"""How deeply calculations may be nested. A sum of N terms has a depth of N - 1."""

_MIRRORED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def build_call(name: Name, arguments: Sequence[Literal | Variable | LocatedAttribute]) -> Call:
    """Build the call `name(argument, …)`."""
    if len(arguments) > MAX_ARGUMENTS:
        raise StatementSyntaxError(f"a call can have at most {MAX_ARGUMENTS} arguments", span=name.span)
    return Call(name.text, tuple(map(_to_argument, arguments)), span=name.span)


def _to_argument(written: Literal | Variable | LocatedAttribute) -> Argument:
    match written:
        case Variable():
            return written
        case Literal(value, _):
            return Literally(value)
        case LocatedAttribute(attribute, token):
            if attribute.name == WHOLE.name or attribute.part is not None:
                raise InvalidConditionError(
                    f"{render_attribute(attribute)} cannot be passed to an operator",
                    span=token.span,
                    hint="pass the name of an attribute; an operator can read the item without arguments",
                )
            return attribute


def build_arithmetic(left: ParsedQuantity, sign: Token, right: ParsedQuantity) -> Arithmetic:
    """Build `left + right`, or another calculation, from its sign."""
    arithmetic = Arithmetic(cast(Sign, sign.text), _to_quantity(left), _to_quantity(right))
    if arithmetic_depth(arithmetic) > MAX_ARITHMETIC_DEPTH:
        raise StatementSyntaxError(
            f"calculations cannot be nested more than {MAX_ARITHMETIC_DEPTH} levels deep",
            span=sign.span,
            hint="register an operator that computes the value",
        )
    if next(variables_of(arithmetic), None) is None and not _has_value(arithmetic):
        raise InvalidConditionError(
            f"{render_quantity(arithmetic)} has no value, so the condition could never hold",
            span=sign.span,
            hint="check the calculation for a division by zero or an overflow",
        )
    return arithmetic


def _has_value(constant: Arithmetic) -> bool:
    value = evaluate_quantity(constant, {})
    return value is not None and value == value  # NaN, such as infinity minus infinity, is not a value


def _to_quantity(written: ParsedQuantity) -> Quantity:
    return Literally(written.value) if isinstance(written, Literal) else written


def build_constraint(left: ParsedQuantity, sign: str, right: ParsedQuantity, span: Span | None) -> Constraint:
    """Build `left < right`, or another comparison, from its sign. Errors point to `span`."""
    relation: Relation = "!=" if sign == "<>" else cast(Relation, sign)
    constraint = Constraint(_to_quantity(left), relation, _to_quantity(right))
    if next(variables_of(constraint), None) is None:
        raise InvalidConditionError(
            "a comparison of two constants does not depend on the item",
            span=span,
            hint="compare a variable that an operator binds: mobPattern(?people) and ?people > 50",
        )
    if relation in ("=", "!="):
        _reject_relative_time(right)
    if next(variables_of(constraint.left), None) is None:
        return Constraint(constraint.right, _MIRRORED[relation], constraint.left)
    return constraint


def _reject_relative_time(written: ParsedQuantity) -> None:
    if isinstance(written, Literal) and isinstance(written.value, Ago):
        raise InvalidConditionError(
            "relative times cannot be compared for equality",
            span=written.token.span,
            hint="use <, <=, > or >=",
        )


def build_range(
    quantity: ParsedQuantity, low: ParsedQuantity, high: ParsedQuantity, *, outside: bool = False
) -> Expression:
    """Build `quantity between low and high`, or `not between` if `outside`.

    The bounds are inclusive. If a bound has no value, neither condition holds.
    """
    if isinstance(low, Literal) and isinstance(high, Literal):
        check_order(low, high)
    below, above = ("<", ">") if outside else (">=", "<=")
    constraints: list[Expression] = [
        build_constraint(quantity, below, low, _find_span(quantity)),
        build_constraint(quantity, above, high, _find_span(quantity)),
    ]
    if outside:
        return conjunction([disjunction(constraints), *_require_values((low, high))])
    return conjunction(constraints)


def build_choice(quantity: ParsedQuantity, options: Sequence[ParsedQuantity], *, negated: bool = False) -> Expression:
    """Build `quantity in (option, …)`, or `not in` if `negated`.

    If an option has no value, neither condition holds.
    """
    relation = "!=" if negated else "="
    constraints: list[Expression] = [
        build_constraint(quantity, relation, option, _find_span(quantity)) for option in options
    ]
    return conjunction(constraints if negated else [disjunction(constraints), *_require_values(options)])


def _require_values(quantities: Sequence[ParsedQuantity]) -> Iterator[Constraint]:
    """Yield `x = x` for each calculation x with variables, which holds if x has a value.

    A single quantity needs no such condition, because the comparison with it requires its value anyway.
    """
    for quantity in quantities if len(quantities) > 1 else ():
        if isinstance(quantity, Arithmetic) and next(variables_of(quantity), None) is not None:
            yield Constraint(quantity, "=", quantity)


def _find_span(written: ParsedQuantity) -> Span | None:
    """Return the span of a constant, or of the first variable of a calculation."""
    if isinstance(written, Literal):
        return written.token.span
    return next((variable.span for variable in variables_of(written)), None)
