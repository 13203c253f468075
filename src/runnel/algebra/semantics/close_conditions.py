"""Closing of conditions: splitting them into parts that share no variables and can be evaluated separately.

In: a condition with calls, constraints and item patterns, as parsed. Out: an equivalent condition of terms, atoms,
item patterns, `and`, `or` and `not`. The parts of a conjunction are grouped by the variables that they share. In each
group, patterns of the same family become one pattern, and calls form a term with the patterns and constraints of the
group. An `or` that shares variables with other parts of a conjunction is distributed over these parts.
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

MAX_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True)
class Alternative:
    """One disjunct: a conjunction of calls, constraints and patterns with variables, and of parts without any."""

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
    """Yield the parts of a condition other than `and`, `or` and `not`, from left to right."""
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
    """Return whether a condition has operator calls or constraints."""
    return any(isinstance(leaf, Call | Constraint | Term) for leaf in leaves(expression))


def has_variables(expression: Expression) -> bool:
    """Return whether a condition has operator calls, constraints or item patterns, which may have variables."""
    return any(isinstance(leaf, ItemPattern | Call | Constraint | Term) for leaf in leaves(expression))


def terms_of(closed: Expression) -> Iterator[Term]:
    """Yield the terms of a closed condition, from left to right."""
    return (leaf for leaf in leaves(closed) if isinstance(leaf, Term))


def free_variables(expression: Expression) -> set[str]:
    """Return the variables that a condition can share with other conditions. Those under `not` are local."""
    names: set[str] = set()
    stack: list[Expression] = [expression]
    while stack:
        match stack.pop():
            case And(parts) | Or(parts):
                stack.extend(parts)
            case Call() as part:
                names.update(argument.name for argument in part.arguments if isinstance(argument, Variable | Given))
            case Constraint() as part:
                names.update(variable.name for variable in variables_of(part))
            case ItemPattern() as part:
                names.update(part.open_variables())
            case _:
                pass
    return names


def close_condition(expression: Expression) -> Expression:
    """Return the closed condition, or the same object if there are no variables.

    Raise InvalidConditionError if a constraint has a variable that its conjunction does not bind.

    >>> call = Call("mob", (Variable("people"),), 1, (0,))
    >>> close_condition(And((call, Constraint(Variable("people"), ">", Literally(50.0))))).constraints[0].left
    Variable(name='1')
    """
    return _close(expression) if has_variables(expression) else expression


@lru_cache(maxsize=4096)
def _close(expression: Expression) -> Expression:
    match expression:
        case And(parts):
            return conjunction([_close_parts(group) for group in _group_by_variables(parts)])
        case Or(parts):
            return disjunction([close_condition(part) for part in parts])
        case Not(part):
            return negation(_drop_names(close_condition(part)))
        case Call():
            return _close_group((expression,))
        case Constraint():
            return _close_group((expression,))
        case _:
            return expression


def _drop_names(closed: Expression) -> Expression:
    """Drop the original names of variables in terms, because a match does not report variables under `not`."""
    match closed:
        case And(parts):
            return And(tuple(map(_drop_names, parts)))
        case Or(parts):
            return Or(tuple(map(_drop_names, parts)))
        case Not(part):
            return Not(_drop_names(part))
        case Term():
            return replace(closed, names=())
        case _:
            return closed


def _close_parts(parts: Sequence[Expression]) -> Expression:
    """Close the parts of a conjunction that share variables."""
    if len(parts) == 1 and not isinstance(parts[0], And):
        return close_condition(parts[0])
    return disjunction([_close_alternative(each) for each in alternatives(And(tuple(parts)))])


def _close_alternative(alternative: Alternative) -> Expression:
    parts: tuple[Expression, ...] = (*alternative.patterns, *alternative.calls, *alternative.constraints)
    closed = [close_condition(part) for part in alternative.others]
    closed += [_close_group(group) for group in _group_by_variables(parts)]
    return conjunction(closed)


def _close_group(group: Sequence[Expression]) -> Term | ItemPattern:
    """Turn parts that share variables into a term, or into a pattern if the parts have no calls."""
    calls = tuple(part for part in group if isinstance(part, Call))
    constraints = tuple(part for part in group if isinstance(part, Constraint))
    patterns = tuple(part for part in group if isinstance(part, ItemPattern))
    term = gather(Alternative(calls, constraints, patterns=patterns))
    if calls or not term.patterns:
        return _build_term(term)
    _check_one_family(term)
    pattern = term.patterns[0]
    for constraint in term.constraints:
        _check_bound(constraint, set(pattern.variables()))
        raise InvalidConditionError(
            f"a {pattern.family} pattern cannot evaluate {render_operators(constraint)}",
            span=next((variable.span for variable in variables_of(constraint)), None),
            hint=pattern.constraint_hint,
        )
    return pattern


def _check_one_family(term: Term) -> None:
    if len(term.patterns) > 1:
        first, second = term.patterns[:2]
        shared = sorted(set(first.open_variables()) & set(second.open_variables()))
        raise InvalidConditionError(
            f"?{shared[0]} is bound by a {first.family} and a {second.family} pattern"
            if shared
            else f"a comparison has variables of a {first.family} pattern and of a {second.family} pattern",
            span=second.span,
            hint="pass the variables to an operator, or use different variables in the two patterns",
        )


def gather(alternative: Alternative) -> Term:
    """Return the calls, constraints and patterns of a disjunct as one term, with the original names of variables.

    Patterns of the same family are joined into one, which takes over the constraints that it can evaluate.
    """
    families: dict[str, list[ItemPattern]] = {}
    for pattern in alternative.patterns:
        families.setdefault(pattern.family, []).append(pattern)
    constraints, patterns = list(alternative.constraints), []
    for name in sorted(families):
        joined = type(families[name][0]).joined(families[name])
        pattern, constraints = joined.constrained(constraints)
        patterns.append(pattern)
    return Term(alternative.calls, tuple(constraints), patterns=tuple(patterns))


def alternatives(expression: Expression) -> list[Alternative]:
    """Return the disjuncts of a condition. Parts without variables are not distributed.

    Raise InvalidConditionError if there are more than `MAX_ALTERNATIVES`.
    """
    match expression:
        case And(parts):
            disjuncts = [Alternative()]
            for part in parts:
                disjuncts = [left + right for right in alternatives(part) for left in disjuncts]
                _check_count(disjuncts)
            return disjuncts
        case Or(parts) if has_variables(expression):
            disjuncts = [alternative for part in parts for alternative in alternatives(part)]
            _check_count(disjuncts)
            return disjuncts
        case Call():
            return [Alternative(calls=(expression,))]
        case Constraint():
            return [Alternative(constraints=(expression,))]
        case ItemPattern() if expression.open_variables():
            return [Alternative(patterns=(expression,))]
        case _:
            return [Alternative(others=(expression,))]


def _check_count(disjuncts: Sequence[Alternative]) -> None:
    if len(disjuncts) > MAX_ALTERNATIVES:
        raise InvalidConditionError(
            f"the condition has more than {MAX_ALTERNATIVES} disjuncts with operators or patterns",
            hint="combine fewer conditions that share variables with `or`, or define several feeds",
        )


def _group_by_variables(parts: Iterable[Expression]) -> list[list[Expression]]:
    """Group parts by shared variables. No two groups share a variable; groups are ordered by their first parts."""
    groups: list[tuple[set[str], list[tuple[int, Expression]]]] = []
    for index, part in enumerate(parts):
        variables = free_variables(part)
        sharing = [group for group in groups if group[0] & variables]
        names = variables.union(*(group[0] for group in sharing))
        members = [*(member for group in sharing for member in group[1]), (index, part)]
        members.sort(key=lambda member: member[0])
        groups = [group for group in groups if group not in sharing]
        groups.append((names, members))
    groups.sort(key=lambda group: group[1][0][0])
    return [[part for _, part in members] for _, members in groups]


def _build_term(term: Term) -> Term:
    """Return the term with its variables numbered by their order. Raise an error if a variable is not bound."""
    bound_by_patterns = {name for pattern in term.patterns for name in pattern.variables()}
    bound = {*bound_by_patterns, *(variable.name for call in term.calls for variable in variables_of(call))}
    for constraint in term.constraints:
        _check_bound(constraint, bound)
    for given in (given for call in term.calls for given in call.given):
        if given.name not in bound_by_patterns:
            raise _unbound_input_error(given)
    names: dict[str, str] = {}
    patterns = tuple(_number_variables(pattern, names) for pattern in term.patterns)
    named = [
        replace(call, arguments=tuple(_renamed_given(each, names) for each in call.arguments)) for call in term.calls
    ]
    calls = tuple(dict.fromkeys(sorted(named, key=_call_order)))
    for call in calls:
        for variable in variables_of(call):
            names.setdefault(variable.name, str(len(names) + 1))
    renamed = tuple(_renamed_call(call, names) for call in calls)
    constraints = {_renamed_constraint(constraint, names) for constraint in term.constraints}
    return Term(renamed, tuple(sorted(constraints, key=repr)), tuple(names), patterns)


def pattern_term(pattern: ItemPattern) -> Term:
    """Return a term of a pattern alone, which binds the pattern's variables."""
    return _build_term(Term((), patterns=(pattern,)))


def _check_bound(constraint: Constraint, bound: set[str]) -> None:
    variables = list(variables_of(constraint))
    for variable in variables:
        if variable.name not in bound:
            raise _unbound_error(variable)
    if not variables:
        raise InvalidConditionError("a comparison without a variable does not depend on the item")


def _number_variables(pattern: ItemPattern, names: dict[str, str]) -> ItemPattern:
    """Return a pattern with numbers as variable names, and add the new name of each old one to `names`."""
    ordered = pattern.canonical()
    numbers: dict[str, str] = {}
    for number, name in enumerate(ordered.names, 1):
        numbers[str(number)] = f"_:{number}" if is_local(name) else names.setdefault(name, str(len(names) + 1))
    return ordered.renamed(numbers)


def _renamed_given(argument: Argument, names: dict[str, str]) -> Argument:
    return replace(argument, name=names[argument.name], span=None) if isinstance(argument, Given) else argument


def _call_order(call: Call) -> tuple[str, str]:
    """Return a sort key of a call that does not depend on the names of variables. Equal keys are possible."""
    return call.operator, repr(call.question)


def _unbound_error(variable: Variable) -> InvalidConditionError:
    return InvalidConditionError(
        f"?{variable.name} is not bound here",
        span=variable.span,
        hint="bind it by an operator or a pattern in the same conjunction; variables under `not` are local",
    )


def _unbound_input_error(given: Given) -> InvalidConditionError:
    return InvalidConditionError(
        f"?{given.name} is not bound here",
        span=given.span,
        hint="an input must be a constant or a variable of a pattern in the same conjunction",
    )


def rename_term(term: Term, names: Sequence[str]) -> Term:
    """Return a term with its original variable names `names`, or the same term if `names` is empty."""
    if not names:
        return term
    by_number = {str(number): name for number, name in enumerate(names, 1)}
    patterns = tuple(
        pattern.renamed({name: by_number.get(name, name) for name in pattern.variables()})
        for pattern in term.patterns
    )
    named = (
        replace(call, arguments=tuple(_renamed_given(argument, by_number) for argument in call.arguments))
        for call in term.calls
    )
    calls = tuple(_renamed_call(call, by_number) for call in named)
    constraints = tuple(_renamed_constraint(constraint, by_number) for constraint in term.constraints)
    return Term(calls, constraints, patterns=patterns)


def _renamed_call(call: Call, names: dict[str, str]) -> Call:
    arguments = tuple(
        Variable(names[argument.name]) if isinstance(argument, Variable) else argument for argument in call.arguments
    )
    return replace(call, arguments=arguments, span=None)


def _renamed_constraint(constraint: Constraint, names: dict[str, str]) -> Constraint:
    return replace(constraint, left=_renamed(constraint.left, names), right=_renamed(constraint.right, names))


def _renamed(quantity: Quantity, names: dict[str, str]) -> Quantity:
    match quantity:
        case Variable(name):
            return Variable(names[name])
        case Arithmetic(sign, left, right):
            return Arithmetic(sign, _renamed(left, names), _renamed(right, names))
        case Literally():
            return quantity
