"""Conditions as they are built: what may stand where, and atoms whose constants fit their attributes.

In: attributes and constants with their tokens. Out: expressions in canonical shape, and the conjuncts of a `where`.
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
from runnel.language.syntax.literals import Duration, Literal, Located, fitting, fitting_exactly
from runnel.language.syntax.nesting import DEEPEST, too_deep
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import Condition


@dataclass(frozen=True, slots=True)
class Conjuncts:
    """A conjunction with conditions on variables: it may stand at the top of a `where` and nowhere else."""

    scoped: tuple[Condition, ...]
    plain: tuple[Expression, ...] = ()


Built: TypeAlias = "Expression | Conjuncts"


def unscoped(part: Built, word: str) -> Expression:
    """The part, if it may stand under `or` or `not`: a condition on a variable may not."""
    if not isinstance(part, Conjuncts):
        return part
    variable = part.scoped[0].variable
    raise InvalidConditionError(
        f"a condition on a variable cannot stand under {word}",
        span=variable.span if variable else None,
        hint="put it inside the brackets: $v[not a = 1 or b = 2]",
    )


def conditions_of(where: Built, keyword: Token) -> tuple[Condition, ...]:
    """The conjuncts of a `where`: those on variables in their order, then all others as one."""
    if isinstance(where, Conjuncts):
        found = where.scoped
        if where.plain:
            found = (*found, Condition(None, conjunction(list(where.plain))))
    else:
        found = (Condition(None, where),)
    # What is printed may have more parentheses than what was written: `a or b and c` has one pair.
    if any(_nesting(condition.expression) > DEEPEST for condition in found):
        raise too_deep(keyword.span)
    return found


def _nesting(expression: Expression) -> int:
    """How many pairs of parentheses lie within each other when the expression is printed as an operand."""
    match expression:
        case And(parts) | Or(parts):
            return 1 + max(map(_nesting, parts))
        case Not(part):
            return _nesting(part)
        case Constraint(left, _, right):
            return max(arithmetic_depth(left), arithmetic_depth(right))
        case _:
            return 0


def arithmetic_depth(one: Quantity) -> int:
    """How deeply a calculation is nested; it has at most as many pairs of parentheses within each other."""
    return 1 + max(arithmetic_depth(one.left), arithmetic_depth(one.right)) if isinstance(one, Arithmetic) else 0


def build_between(located: Located, low: Literal, high: Literal) -> Between:
    """`attribute between low and high`."""
    least, most = fitting(located, low), fitting(located, high)
    check_order(low._replace(value=least), high._replace(value=most))
    return Between(located.attribute, least, most)


def check_order(low: Literal, high: Literal) -> None:
    """Refuse two constants that nothing lies between."""
    least, most = low.value, high.value
    if _sort(least) != _sort(most):
        raise InvalidConditionError(
            "between needs two constants of one kind: no value is at once above a "
            f"{_sort(least)} and below a {_sort(most)}",
            span=high.token.span,
        )
    # A day and an instant have no order of their own; `compare` takes each for itself.
    if type(least) is type(most) and _rank(least) > _rank(most):
        raise InvalidConditionError(
            "the first constant of between is above the second, so nothing lies between them",
            span=low.token.span,
            hint="swap the two constants",
        )


def build_within(located: Located, duration: Duration) -> Between:
    """`attribute within last duration`: not before that, and not after the item's acceptance."""
    return Between(located.attribute, fitting(located, Literal(Ago(duration.length), located.token)), NOW)


def build_one_of(located: Located, literals: Sequence[Literal]) -> In:
    """`attribute in (constant, …)`, each constant once."""
    # The type belongs to the key: in Python 1.0 == True, in the language 1 and true are two values.
    found = {(type(value), value): value for value in (fitting_exactly(located, one) for one in literals)}
    return In(located.attribute, tuple(found.values()))


def _rank(constant: Constant) -> Any:
    """What orders constants of one type; the longer ago, the earlier."""
    return -constant.length if isinstance(constant, Ago) else constant


def _sort(constant: Constant) -> str:
    match constant:
        case bool():
            return "truth value"
        case str():
            return "text"
        case datetime() | date() | Ago():
            return "date"
        case _:
            return "number"
