"""Conditions with variables, closed: cut into parts that hold or not by themselves.

In: a condition with calls, constraints and item patterns, as written. Out: the same condition over terms, filters,
item patterns, and, or and not. A variable ties the parts of a conjunction together; parts that no variable ties
together are decided separately. Patterns of one family that are tied to one another become one pattern, and the
patterns and constraints that are tied to a call form a term with it. Where a variable leads into an `or`, the `or` is
distributed over the parts that it is tied to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from runnel.algebra.nodes.calls import (
    Argument,
    Arithmetic,
    Call,
    Constraint,
    Given,
    Literally,
    Quantity,
    Variable,
    variables_of,
)
from runnel.algebra.nodes.expressions import And, Expression, Not, Or, conjunction, disjunction, negation
from runnel.algebra.nodes.item_patterns import ItemPattern, is_local
from runnel.algebra.nodes.render import render_operators
from runnel.algebra.nodes.terms import Term
from runnel.errors import InvalidConditionError

MOST_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True)
class Alternative:
    """A conjunction: calls, constraints and patterns that share variables, and parts without open variables."""

    calls: tuple[Call, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    others: tuple[Expression, ...] = ()
    patterns: tuple[ItemPattern, ...] = ()

    def __add__(self, other: Alternative) -> Alternative:
        return Alternative(
            self.calls + other.calls,
            self.constraints + other.constraints,
            self.others + other.others,
            self.patterns + other.patterns,
        )


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


def has_variables(expression: Expression) -> bool:
    """Whether a condition may have variables: of operators or of item patterns."""
    return any(isinstance(leaf, ItemPattern | Call | Constraint | Term) for leaf in leaves(expression))


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
            case Call() as part:
                found.update(one.name for one in part.arguments if isinstance(one, Variable | Given))
            case Constraint() as part:
                found.update(one.name for one in variables_of(part))
            case ItemPattern() as part:
                found.update(part.open_variables())
            case _:
                pass
    return found


def close_condition(expression: Expression) -> Expression:
    """The condition over terms and item patterns; the same object where there are no variables.

    Refuses a constraint on a variable that nothing next to it binds.

    >>> call = Call("mob", (Variable("people"),), 1, (0,))
    >>> close_condition(And((call, Constraint(Variable("people"), ">", Literally(50.0))))).constraints[0].left
    Variable(name='1')
    """
    return _closed(expression) if has_variables(expression) else expression


@lru_cache(maxsize=4096)
def _closed(expression: Expression) -> Expression:
    match expression:
        case And(parts):
            return conjunction([_close_tied(group) for group in _tied(parts)])
        case Or(parts):
            return disjunction([close_condition(part) for part in parts])
        case Not(part):
            return negation(_nameless(close_condition(part)))
        case Call():
            return _gathered((expression,))
        case Constraint():
            return _gathered((expression,))
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
        return close_condition(parts[0])
    return disjunction([_close_alternative(one) for one in alternatives(And(tuple(parts)))])


def _close_alternative(one: Alternative) -> Expression:
    closed = [close_condition(part) for part in one.others]
    closed += [_gathered(group) for group in _tied((*one.patterns, *one.calls, *one.constraints))]
    return conjunction(closed)


def _gathered(group: Sequence[Expression]) -> Term | ItemPattern:
    """Calls, constraints and patterns that are tied together: a term, or the pattern where there is nothing else."""
    calls = tuple(part for part in group if isinstance(part, Call))
    constraints = tuple(part for part in group if isinstance(part, Constraint))
    patterns = tuple(part for part in group if isinstance(part, ItemPattern))
    one = gather(Alternative(calls, constraints, patterns=patterns))
    if calls or not one.patterns:
        return _term(one)
    _check_one_family(one)
    pattern = one.patterns[0]
    for constraint in one.constraints:
        _check_bound(constraint, set(pattern.variables()))
        raise InvalidConditionError(
            f"{render_operators(constraint)} cannot be asked of a {pattern.family}",
            span=next((variable.span for variable in variables_of(constraint)), None),
            hint=pattern.constraint_hint,
        )
    return pattern


def _check_one_family(one: Term) -> None:
    if len(one.patterns) > 1:
        first, second = one.patterns[:2]
        shared = sorted(set(first.open_variables()) & set(second.open_variables()))
        raise InvalidConditionError(
            f"?{shared[0]} is bound by a {first.family} and a {second.family} pattern"
            if shared
            else f"a comparison ties a {first.family} and a {second.family} pattern together",
            span=second.span,
            hint="patterns of different families share variables only through an operator; use different names",
        )


def gather(one: Alternative) -> Term:
    """Calls, constraints and patterns as one term, under the names as written.

    The patterns of each family become one, and check the constraints that they can check themselves.
    """
    families: dict[str, list[ItemPattern]] = {}
    for pattern in one.patterns:
        families.setdefault(pattern.family, []).append(pattern)
    constraints, patterns = list(one.constraints), []
    for name in sorted(families):
        joined = type(families[name][0]).joined(families[name])
        pattern, constraints = joined.constrained(constraints)
        patterns.append(pattern)
    return Term(one.calls, tuple(constraints), patterns=tuple(patterns))


def alternatives(expression: Expression) -> list[Alternative]:
    """A condition as a disjunction of conjunctions, as far as variables take part in it."""
    match expression:
        case And(parts):
            found = [Alternative()]
            for part in parts:
                found = [one + other for other in alternatives(part) for one in found]
                _check_number(found)
            return found
        case Or(parts) if has_variables(expression):
            found = [one for part in parts for one in alternatives(part)]
            _check_number(found)
            return found
        case Call():
            return [Alternative(calls=(expression,))]
        case Constraint():
            return [Alternative(constraints=(expression,))]
        case ItemPattern() if expression.open_variables():
            return [Alternative(patterns=(expression,))]
        case _:
            return [Alternative(others=(expression,))]


def _check_number(found: Sequence[Alternative]) -> None:
    if len(found) > MOST_ALTERNATIVES:
        raise InvalidConditionError(
            f"operators or patterns are combined in more than {MOST_ALTERNATIVES} alternative ways",
            hint="use fewer `or` between conditions that share variables, or several feeds",
        )


def _tied(parts: Iterable[Expression]) -> list[list[Expression]]:
    """The parts in groups that share no variable with one another, in order of their first parts."""
    groups: list[tuple[set[str], list[tuple[int, Expression]]]] = []
    for index, part in enumerate(parts):
        variables = free_variables(part)
        touched = [group for group in groups if group[0] & variables]
        names = variables.union(*(group[0] for group in touched))
        members = sorted([*(one for group in touched for one in group[1]), (index, part)], key=lambda one: one[0])
        groups = [group for group in groups if group not in touched]
        groups.append((names, members))
    groups.sort(key=lambda group: group[1][0][0])
    return [[part for _, part in members] for _, members in groups]


def _term(one: Term) -> Term:
    """The term, its variables named by their order; checked."""
    known = {name for pattern in one.patterns for name in pattern.variables()}
    bound = {*known, *(variable.name for call in one.calls for variable in variables_of(call))}
    for constraint in one.constraints:
        _check_bound(constraint, bound)
    for given in (given for call in one.calls for given in call.given):
        if given.name not in known:
            raise _not_given(given)
    names: dict[str, str] = {}
    patterns = tuple(_numbered(pattern, names) for pattern in one.patterns)
    named = [
        replace(call, arguments=tuple(_renamed_given(each, names) for each in call.arguments)) for call in one.calls
    ]
    calls = tuple(dict.fromkeys(sorted(named, key=_call_order)))
    for call in calls:
        for variable in variables_of(call):
            names.setdefault(variable.name, str(len(names) + 1))
    renamed = tuple(_renamed_call(call, names) for call in calls)
    constraints = {_renamed_constraint(constraint, names) for constraint in one.constraints}
    return Term(renamed, tuple(sorted(constraints, key=repr)), tuple(names), patterns)


def pattern_term(pattern: ItemPattern) -> Term:
    """A pattern as a term of its own, which binds its variables."""
    return _term(Term((), patterns=(pattern,)))


def _check_bound(constraint: Constraint, bound: set[str]) -> None:
    variables = list(variables_of(constraint))
    for variable in variables:
        if variable.name not in bound:
            raise _unbound(variable)
    if not variables:
        raise InvalidConditionError("a constraint without a variable says nothing of the item")


def _numbered(pattern: ItemPattern, names: dict[str, str]) -> ItemPattern:
    """A pattern with new names that do not depend on the old ones; `names` gets the new name of every old one."""
    ordered = pattern.canonical()
    numbers: dict[str, str] = {}
    for number, name in enumerate(ordered.names, 1):
        numbers[str(number)] = f"_:{number}" if is_local(name) else names.setdefault(name, str(len(names) + 1))
    return ordered.renamed(numbers)


def _renamed_given(argument: Argument, names: dict[str, str]) -> Argument:
    return replace(argument, name=names[argument.name], span=None) if isinstance(argument, Given) else argument


def _call_order(call: Call) -> tuple[str, str]:
    """An order of calls that does not depend on the names of variables, as far as it can be had cheaply."""
    return call.operator, repr(call.question)


def _unbound(variable: Variable) -> InvalidConditionError:
    return InvalidConditionError(
        f"nothing gives ?{variable.name} a value here",
        span=variable.span,
        hint=f"?{variable.name} must be a result or in a pattern next to it; variables under `not` are local",
    )


def _not_given(given: Given) -> InvalidConditionError:
    return InvalidConditionError(
        f"nothing gives ?{given.name} a value here",
        span=given.span,
        hint="operators are given constants, or variables of a pattern next to them",
    )


def rename_term(term: Term, names: Sequence[str]) -> Term:
    """A term with its variables called by these names, as it was written; the same where there are none."""
    if not names:
        return term
    by_number = {str(number): name for number, name in enumerate(names, 1)}
    patterns = tuple(
        one.renamed({name: by_number.get(name, name) for name in one.variables()}) for one in term.patterns
    )
    named = (
        replace(call, arguments=tuple(_renamed_given(one, by_number) for one in call.arguments))
        for call in term.calls
    )
    calls = tuple(_renamed_call(call, by_number) for call in named)
    return Term(calls, tuple(_renamed_constraint(one, by_number) for one in term.constraints), patterns=patterns)


def _renamed_call(call: Call, names: dict[str, str]) -> Call:
    arguments = tuple(Variable(names[one.name]) if isinstance(one, Variable) else one for one in call.arguments)
    return replace(call, arguments=arguments, span=None)


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
