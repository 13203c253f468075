"""Conditions with operators, closed: cut into terms that hold or not by themselves.

In: a condition with calls and constraints, as written. Out: the same condition over terms, filters, and, or and not.
A variable ties the parts of a conjunction together; what no variable ties together is decided by itself. Where one
leads into an `or`, the `or` is distributed over what it is tied to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from runnel.algebra.calls import Arithmetic, Call, Constraint, Literally, Quantity, Term, Variable, variables_of
from runnel.algebra.expressions import And, Expression, Not, Or, conjunction, disjunction, negation
from runnel.errors import InvalidCondition

MOST_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True)
class Alternative:
    """A conjunction: calls and constraints that share variables, and parts without variables of their own."""

    calls: tuple[Call, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    others: tuple[Expression, ...] = ()

    def __add__(self, other: Alternative) -> Alternative:
        return Alternative(self.calls + other.calls, self.constraints + other.constraints, self.others + other.others)


def leaves(expression: Expression) -> Iterator[Expression]:
    """The parts of a condition that are no and, or or not, from left to right."""
    stack: list[Expression] = [expression]
    while stack:
        match stack.pop():
            case And(parts) | Or(parts):
                stack.extend(reversed(parts))
            case Not(part):
                stack.append(part)
            case leaf:
                yield leaf


def has_calls(expression: Expression) -> bool:
    """Whether operators take part in a condition."""
    return any(isinstance(leaf, Call | Constraint | Term) for leaf in leaves(expression))


def terms_of(closed: Expression) -> Iterator[Term]:
    """The terms of a condition that was closed, from left to right."""
    return (leaf for leaf in leaves(closed) if isinstance(leaf, Term))


def free_variables(expression: Expression) -> set[str]:
    """The variables by which a condition is tied to what stands beside it; those under `not` are local."""
    found: set[str] = set()
    stack: list[Expression] = [expression]
    while stack:
        match stack.pop():
            case And(parts) | Or(parts):
                stack.extend(parts)
            case Call() | Constraint() as part:
                found.update(one.name for one in variables_of(part))
            case _:
                pass
    return found


def close(expression: Expression) -> Expression:
    """The condition over terms; the same object where no operator takes part.

    Refuses a constraint on a variable that no call beside it binds.

    >>> call = Call("mob", (Variable("people"),), 1, (0,))
    >>> close(And((call, Constraint(Variable("people"), ">", Literally(50.0))))).constraints[0].left
    Variable(name='1')
    """
    return _closed(expression) if has_calls(expression) else expression


@lru_cache(maxsize=4096)
def _closed(expression: Expression) -> Expression:
    match expression:
        case And(parts):
            return conjunction([_close_tied(group) for group in _tied(parts)])
        case Or(parts):
            return disjunction([close(part) for part in parts])
        case Not(part):
            return negation(_nameless(close(part)))
        case Call():
            return _term(Alternative(calls=(expression,)))
        case Constraint():
            return _term(Alternative(constraints=(expression,)))
        case _:
            return expression


def _nameless(closed: Expression) -> Expression:
    """The same condition, with terms whose variables nobody outside knows."""
    match closed:
        case And(parts):
            return And(tuple(map(_nameless, parts)))
        case Or(parts):
            return Or(tuple(map(_nameless, parts)))
        case Not(part):
            return Not(_nameless(part))
        case Term():
            return replace(closed, names=())
        case _:
            return closed


def _close_tied(parts: Sequence[Expression]) -> Expression:
    """Parts of a conjunction that variables tie together."""
    if len(parts) == 1 and not isinstance(parts[0], And):
        return close(parts[0])
    return disjunction([_close_alternative(one) for one in alternatives(And(tuple(parts)))])


def _close_alternative(one: Alternative) -> Expression:
    closed = [close(part) for part in one.others]
    for group in _tied((*one.calls, *one.constraints)):
        calls = tuple(part for part in group if isinstance(part, Call))
        closed.append(_term(Alternative(calls, tuple(part for part in group if isinstance(part, Constraint)))))
    return conjunction(closed)


def alternatives(expression: Expression) -> list[Alternative]:
    """A condition as a disjunction of conjunctions, as far as operators take part in it."""
    match expression:
        case And(parts):
            found = [Alternative()]
            for part in parts:
                found = [one + other for other in alternatives(part) for one in found]
                _check_number(found)
            return found
        case Or(parts) if has_calls(expression):
            found = [one for part in parts for one in alternatives(part)]
            _check_number(found)
            return found
        case Call():
            return [Alternative(calls=(expression,))]
        case Constraint():
            return [Alternative(constraints=(expression,))]
        case _:
            return [Alternative(others=(expression,))]


def _check_number(found: Sequence[Alternative]) -> None:
    if len(found) > MOST_ALTERNATIVES:
        raise InvalidCondition(
            f"operators are combined in more than {MOST_ALTERNATIVES} alternative ways",
            hint="use fewer `or` between conditions that share variables, or several feeds",
        )


def _tied(parts: Iterable[Expression]) -> list[list[Expression]]:
    """The parts in groups that share no variable with one another, in order of their first parts."""
    groups: list[tuple[set[str], list[tuple[int, Expression]]]] = []
    for place, part in enumerate(parts):
        variables = free_variables(part)
        touched = [group for group in groups if group[0] & variables]
        names = variables.union(*(group[0] for group in touched))
        members = sorted([*(one for group in touched for one in group[1]), (place, part)], key=lambda one: one[0])
        groups = [group for group in groups if group not in touched]
        groups.append((names, members))
    groups.sort(key=lambda group: group[1][0][0])
    return [[part for _, part in members] for _, members in groups]


def _term(one: Alternative) -> Term:
    """The term of calls and constraints, its variables named by their order; checked."""
    bound = {variable.name for call in one.calls for variable in variables_of(call)}
    for constraint in one.constraints:
        variables = list(variables_of(constraint))
        for variable in variables:
            if variable.name not in bound:
                raise _unbound(variable)
        if not variables:
            raise InvalidCondition("a constraint without a variable says nothing of the item")
    calls = tuple(dict.fromkeys(sorted(one.calls, key=_call_order)))
    names: dict[str, str] = {}
    for call in calls:
        for variable in variables_of(call):
            names.setdefault(variable.name, str(len(names) + 1))
    renamed = tuple(_renamed_call(call, names) for call in calls)
    constraints = {_renamed_constraint(constraint, names) for constraint in one.constraints}
    return Term(renamed, tuple(sorted(constraints, key=repr)), tuple(names))


def _call_order(call: Call) -> tuple[str, str]:
    """An order of calls that does not depend on the names of variables, as far as it can be had cheaply."""
    return call.operator, repr(call.question)


def _unbound(variable: Variable) -> InvalidCondition:
    return InvalidCondition(
        f"nothing gives ?{variable.name} a value here",
        span=variable.place,
        hint=f"?{variable.name} must be a result of an operator beside it; variables under `not` are local",
    )


def rename_term(term: Term, names: Sequence[str]) -> Term:
    """A term with its variables called by these names, as it was written; the same where there are none."""
    if not names:
        return term
    by_number = {str(number): name for number, name in enumerate(names, 1)}
    calls = tuple(_renamed_call(call, by_number) for call in term.calls)
    return Term(calls, tuple(_renamed_constraint(one, by_number) for one in term.constraints))


def _renamed_call(call: Call, names: dict[str, str]) -> Call:
    arguments = tuple(Variable(names[one.name]) if isinstance(one, Variable) else one for one in call.arguments)
    return replace(call, arguments=arguments, place=None)


def _renamed_constraint(constraint: Constraint, names: dict[str, str]) -> Constraint:
    return replace(constraint, left=_renamed(constraint.left, names), right=_renamed(constraint.right, names))


def _renamed(one: Quantity, names: dict[str, str]) -> Quantity:
    match one:
        case Variable(name):
            return Variable(names[name])
        case Arithmetic(sign, left, right):
            return Arithmetic(sign, _renamed(left, names), _renamed(right, names))
        case Literally():
            return one
