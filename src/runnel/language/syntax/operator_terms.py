"""Calls of operators and comparisons of what they find, as they are built.

In: variables, constants with their tokens, attributes. Out: calls and constraints in canonical shape: variables stand
on the left of constants, `between` and `in` are spelt out. Whether an operator exists is asked later, when names are.
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
from runnel.algebra.semantics.bindings import quantity
from runnel.errors import InvalidConditionError, Span, StatementSyntaxError
from runnel.language.syntax.conditions import arithmetic_depth, check_order
from runnel.language.syntax.literals import Literal, Located
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import Name

Written = Literal | Variable | Arithmetic
"""A quantity as the grammar gives it: a constant still knows its token."""

MOST_ARGUMENTS = 32
DEEPEST_ARITHMETIC = 20
"""How many arguments a call may have, and how deeply calculations may be nested; a sum of twenty is that deep."""

_TURNED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def build_call(name: Name, arguments: Sequence[Literal | Variable | Located]) -> Call:
    """`name(argument, …)`."""
    if len(arguments) > MOST_ARGUMENTS:
        raise StatementSyntaxError(f"a call has at most {MOST_ARGUMENTS} arguments", span=name.span)
    return Call(name.text, tuple(map(_argument, arguments)), place=name.span)


def _argument(written: Literal | Variable | Located) -> Argument:
    match written:
        case Variable():
            return written
        case Literal(value, _):
            return Literally(value)
        case Located(attribute, token):
            if attribute.name == WHOLE.name or attribute.part is not None:
                raise InvalidConditionError(
                    f"{render_attribute(attribute)} cannot be given to an operator",
                    span=token.span,
                    hint="give it an attribute by its name; an operator sees the item in any case",
                )
            return attribute


def build_arithmetic(left: Written, sign: Token, right: Written) -> Arithmetic:
    """`left + right`, and so on."""
    made = Arithmetic(cast(Sign, sign.text), _quantity(left), _quantity(right))
    if arithmetic_depth(made) > DEEPEST_ARITHMETIC:
        raise StatementSyntaxError(
            f"a calculation is nested more than {DEEPEST_ARITHMETIC} levels deep",
            span=sign.span,
            hint="let an operator compute it",
        )
    if next(variables_of(made), None) is None and not _has_value(made):
        raise InvalidConditionError(
            f"{render_quantity(made)} has no value, so the condition could never hold",
            span=sign.span,
            hint="correct the calculation, for example a division by zero",
        )
    return made


def _has_value(constant: Arithmetic) -> bool:
    value = quantity(constant, {})
    return value is not None and value == value  # infinity less infinity is none


def _quantity(written: Written) -> Quantity:
    return Literally(written.value) if isinstance(written, Literal) else written


def build_constraint(left: Written, operator: str, right: Written, place: Span | None) -> Constraint:
    """`left < right`, and so on; `place` is that of the comparison."""
    relation: Relation = "!=" if operator == "<>" else cast(Relation, operator)
    made = Constraint(_quantity(left), relation, _quantity(right))
    if next(variables_of(made), None) is None:
        raise InvalidConditionError(
            "a comparison of constants says nothing of the item",
            span=place,
            hint="compare a result of an operator: mobPattern(?people) and ?people > 50",
        )
    if relation in ("=", "!="):
        _refuse_passing(right)
    if next(variables_of(made.left), None) is None:
        return Constraint(made.right, _TURNED[relation], made.left)
    return made


def _refuse_passing(written: Written) -> None:
    if isinstance(written, Literal) and isinstance(written.value, Ago):
        raise InvalidConditionError(
            "a time that passes is hardly ever met exactly",
            span=written.token.span,
            hint="compare it with <, <=, > or >=",
        )


def build_range(one: Written, low: Written, high: Written, *, outside: bool = False) -> Expression:
    """`one between low and high`, both included, or the complement; neither holds where a bound has no value."""
    if isinstance(low, Literal) and isinstance(high, Literal):
        check_order(low, high)
    below, above = ("<", ">") if outside else (">=", "<=")
    made: list[Expression] = [
        build_constraint(one, below, low, _place(one)),
        build_constraint(one, above, high, _place(one)),
    ]
    return conjunction([disjunction(made), *_have_values((low, high))]) if outside else conjunction(made)


def build_choice(one: Written, others: Sequence[Written], *, without: bool = False) -> Expression:
    """`one in (…)`: it equals one of the others, or with `without` none; neither holds where one has no value."""
    relation = "!=" if without else "="
    made: list[Expression] = [build_constraint(one, relation, other, _place(one)) for other in others]
    return conjunction(made if without else [disjunction(made), *_have_values(others)])


def _have_values(others: Sequence[Written]) -> Iterator[Constraint]:
    """Conditions that hold if the calculations have values: each equals itself. Constants need no condition."""
    for other in others if len(others) > 1 else ():
        if isinstance(other, Arithmetic) and next(variables_of(other), None) is not None:
            yield Constraint(other, "=", other)


def _place(written: Written) -> Span | None:
    """Where a quantity stands: a constant, or the first variable of a calculation."""
    if isinstance(written, Literal):
        return written.token.span
    return next((variable.place for variable in variables_of(written)), None)
