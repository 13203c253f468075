"""Construction of conditions from parsed attributes and constants.

In: attributes and constants with their tokens. Out: expressions in canonical form, and the conjuncts of a `where`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

from runnel.algebra.nodes.attributes import Ago, Constant
from runnel.algebra.nodes.calls import Arithmetic, Constraint, Quantity
from runnel.algebra.nodes.expressions import And, Between, Expression, In, Not, Or, conjunction
from runnel.algebra.nodes.render import NOW
from runnel.errors import InvalidConditionError
from runnel.language.syntax.literals import (
    Duration,
    Literal,
    LocatedAttribute,
    coerce_constant,
    coerce_equality_constant,
)
from runnel.language.syntax.nesting import MAX_NESTING, nesting_error
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import Condition


@dataclass(frozen=True, slots=True)
class Conjuncts:
    """A conjunction that contains conditions on variables. It is only allowed at the top level of a `where`."""

    scoped: tuple[Condition, ...]
    plain: tuple[Expression, ...] = ()


ParsedCondition: TypeAlias = "Expression | Conjuncts"


def require_unscoped(part: ParsedCondition, word: str) -> Expression:
    """Return a part of `or` or `not`, the given `word`. Reject conditions on variables, which cannot be a part."""
    if not isinstance(part, Conjuncts):
        return part
    variable = part.scoped[0].variable
    raise InvalidConditionError(
        f"conditions on variables cannot be combined with {word}",
        span=variable.span if variable else None,
        hint=f"write {word} inside the brackets: $v[{'not a = 1' if word == 'not' else 'a = 1 or b = 2'}]",
    )


def split_conjuncts(where: ParsedCondition, keyword: Token) -> tuple[Condition, ...]:
    """Return the conjuncts of a `where`: those on variables in source order, then all others as one condition."""
    if isinstance(where, Conjuncts):
        conditions = where.scoped
        if where.plain:
            conditions = (*conditions, Condition(None, conjunction(list(where.plain))))
    else:
        conditions = (Condition(None, where),)
    # The canonical text can have more parentheses than the source: `a or b and c` gets one pair.
    if any(_nesting(condition.expression) > MAX_NESTING for condition in conditions):
        raise nesting_error(keyword.span)
    return conditions


def _nesting(expression: Expression) -> int:
    """Return how deeply parentheses are nested when the expression is printed as an operand."""
    match expression:
        case And(parts) | Or(parts):
            return 1 + max(map(_nesting, parts))
        case Not(part):
            return _nesting(part)
        case Constraint(left, _, right):
            return max(arithmetic_depth(left), arithmetic_depth(right))
        case _:
            return 0


def arithmetic_depth(quantity: Quantity) -> int:
    """Return how deeply a calculation is nested. Its parentheses are nested at most that deeply."""
    if not isinstance(quantity, Arithmetic):
        return 0
    return 1 + max(arithmetic_depth(quantity.left), arithmetic_depth(quantity.right))


def build_between(located: LocatedAttribute, low: Literal, high: Literal) -> Between:
    """Build `attribute between low and high`."""
    minimum, maximum = coerce_constant(located, low), coerce_constant(located, high)
    check_order(low._replace(value=minimum), high._replace(value=maximum))
    return Between(located.attribute, minimum, maximum)


def check_order(low: Literal, high: Literal) -> None:
    """Reject the bounds of a `between` that no value can satisfy."""
    minimum, maximum = low.value, high.value
    if _type_noun(minimum) != _type_noun(maximum):
        raise InvalidConditionError(
            f"between needs two constants of the same type, not a {_type_noun(minimum)} and a {_type_noun(maximum)}",
            span=high.token.span,
        )
    # Constants of two date types (day, instant, relative time) cannot be ordered here.
    if type(minimum) is type(maximum) and _sort_key(minimum) > _sort_key(maximum):
        raise InvalidConditionError(
            "the lower bound of `between` is above the upper bound",
            span=low.token.span,
            hint="swap the two bounds",
        )


def build_within(located: LocatedAttribute, duration: Duration) -> Between:
    """Build `attribute within last duration`: the values from `duration` before the item's acceptance up to it."""
    return Between(located.attribute, coerce_constant(located, Literal(Ago(duration.length), located.token)), NOW)


def build_one_of(located: LocatedAttribute, literals: Sequence[Literal]) -> In:
    """Build `attribute in (constant, …)` and drop repeated constants."""
    values = (coerce_equality_constant(located, literal) for literal in literals)
    # The key includes the type: 1.0 == True in Python, but 1 and true are different values in the language.
    distinct = {(type(value), value): value for value in values}
    return In(located.attribute, tuple(distinct.values()))


def _sort_key(constant: Constant) -> Any:
    """Return a key that orders constants of the same type. A relative time is earlier the longer ago it is."""
    return -constant.length if isinstance(constant, Ago) else constant


def _type_noun(constant: Constant) -> str:
    match constant:
        case bool():
            return "truth value"
        case str():
            return "text"
        case datetime() | date() | Ago():
            return "date"
        case _:
            return "number"
