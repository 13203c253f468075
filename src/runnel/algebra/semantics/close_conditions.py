"""Conditions with variables, closed: cut into parts that hold or not by themselves.

In: a condition with calls, constraints and graph patterns, as written. Out: the same condition over terms, filters,
graph patterns, and, or and not. A variable ties the parts of a conjunction together; what no variable ties together
is decided by itself. Patterns that are tied to one another are one, and what is tied to a call is a term with it.
Where a variable leads into an `or`, the `or` is distributed over what it is tied to.
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
    Term,
    Variable,
    variables_of,
)
from runnel.algebra.nodes.expressions import And, Expression, Not, Or, conjunction, disjunction, negation
from runnel.algebra.nodes.graph_patterns import Graph, canonical, graph_variables, is_local
from runnel.algebra.nodes.render import render_operators
from runnel.algebra.semantics.join_graphs import as_filter, joined_graphs, open_variables, renamed_graph, with_filters
from runnel.errors import InvalidConditionError

MOST_ALTERNATIVES = 64


@dataclass(frozen=True, slots=True)
class Alternative:
    """A conjunction: calls, constraints and graphs that share variables, and parts without variables of their own."""

    calls: tuple[Call, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    others: tuple[Expression, ...] = ()
    graphs: tuple[Graph, ...] = ()

    def __add__(self, other: Alternative) -> Alternative:
        return Alternative(
            self.calls + other.calls,
            self.constraints + other.constraints,
            self.others + other.others,
            self.graphs + other.graphs,
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
    """Whether a condition may speak of variables: of operators', or of graph patterns'."""
    return any(isinstance(leaf, Graph | Call | Constraint | Term) for leaf in leaves(expression))


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
            case Graph() as part:
                found.update(open_variables(part))
            case _:
                pass
    return found


def close_condition(expression: Expression) -> Expression:
    """The condition over terms and graph patterns; the same object where there are no variables.

    Refuses a constraint on a variable that nothing beside it binds.

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
    closed += [_gathered(group) for group in _tied((*one.graphs, *one.calls, *one.constraints))]
    return conjunction(closed)


def _gathered(group: Sequence[Expression]) -> Term | Graph:
    """Calls, constraints and graphs that are tied together: a term, or without a call the graph with its filter."""
    calls = tuple(part for part in group if isinstance(part, Call))
    constraints = tuple(part for part in group if isinstance(part, Constraint))
    graphs = tuple(part for part in group if isinstance(part, Graph))
    one = gather(Alternative(calls, constraints, graphs=graphs))
    if calls or one.graph is None:
        return _term(one)
    for constraint in one.constraints:
        _check_bound(constraint, set(graph_variables(one.graph)))
        raise InvalidConditionError(
            f"{render_operators(constraint)} cannot be asked of a graph",
            span=next((variable.place for variable in variables_of(constraint)), None),
            hint="variables of a graph are compared with constants and with one another: filter(?year > 2003)",
        )
    return one.graph


def gather(one: Alternative) -> Term:
    """Calls, constraints and graphs as one term, under the names as written.

    What compares variables of the graph alone is a filter of the graph.
    """
    if not one.graphs:
        return Term(one.calls, one.constraints)
    graph = joined_graphs(one.graphs)
    bound = set(graph_variables(graph))
    filters, left = [], []
    for constraint in one.constraints:
        names = {variable.name for variable in variables_of(constraint)}
        told = as_filter(constraint) if names and names <= bound else None
        if told is None:
            left.append(constraint)
        else:
            filters.append(told)
    return Term(one.calls, tuple(left), graph=with_filters(graph, filters) if filters else graph)


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
        case Graph() if open_variables(expression):
            return [Alternative(graphs=(expression,))]
        case _:
            return [Alternative(others=(expression,))]


def _check_number(found: Sequence[Alternative]) -> None:
    if len(found) > MOST_ALTERNATIVES:
        raise InvalidConditionError(
            f"operators or graphs are combined in more than {MOST_ALTERNATIVES} alternative ways",
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


def _term(one: Term) -> Term:
    """The term, its variables named by their order; checked."""
    known = graph_variables(one.graph) if one.graph is not None else []
    bound = {*known, *(variable.name for call in one.calls for variable in variables_of(call))}
    for constraint in one.constraints:
        _check_bound(constraint, bound)
    for given in (given for call in one.calls for given in call.given):
        if given.name not in known:
            raise _not_given(given)
    names, graph = _renamed_by_graph(one.graph)
    named = [
        replace(call, arguments=tuple(_renamed_given(each, names) for each in call.arguments)) for call in one.calls
    ]
    calls = tuple(dict.fromkeys(sorted(named, key=_call_order)))
    for call in calls:
        for variable in variables_of(call):
            names.setdefault(variable.name, str(sum(not is_local(name) for name in names) + 1))
    renamed = tuple(_renamed_call(call, names) for call in calls)
    constraints = {_renamed_constraint(constraint, names) for constraint in one.constraints}
    told = tuple(name for name in names if not is_local(name))
    return Term(renamed, tuple(sorted(constraints, key=repr)), told, graph)


def graph_term(graph: Graph) -> Term:
    """A pattern as a term of its own, for those who want to know what its variables are bound to."""
    return _term(Term((), graph=graph))


def _check_bound(constraint: Constraint, bound: set[str]) -> None:
    variables = list(variables_of(constraint))
    for variable in variables:
        if variable.name not in bound:
            raise _unbound(variable)
    if not variables:
        raise InvalidConditionError("a constraint without a variable says nothing of the item")


def _renamed_by_graph(graph: Graph | None) -> tuple[dict[str, str], Graph | None]:
    """The new names of a pattern's variables, which do not depend on the old ones, and the pattern with these."""
    if graph is None:
        return {}, None
    ordered = canonical(graph)
    names: dict[str, str] = {}
    numbers: dict[str, str] = {}
    for place, name in enumerate(ordered.names, 1):
        names[name] = f"_:{place}" if is_local(name) else str(sum(not is_local(one) for one in names) + 1)
        numbers[str(place)] = names[name]
    return names, renamed_graph(ordered, numbers)


def _renamed_given(argument: Argument, names: dict[str, str]) -> Argument:
    return replace(argument, name=names[argument.name], place=None) if isinstance(argument, Given) else argument


def _call_order(call: Call) -> tuple[str, str]:
    """An order of calls that does not depend on the names of variables, as far as it can be had cheaply."""
    return call.operator, repr(call.question)


def _unbound(variable: Variable) -> InvalidConditionError:
    return InvalidConditionError(
        f"nothing gives ?{variable.name} a value here",
        span=variable.place,
        hint=f"?{variable.name} must be a result or in a graph beside it; variables under `not` are local",
    )


def _not_given(given: Given) -> InvalidConditionError:
    return InvalidConditionError(
        f"nothing gives ?{given.name} a value here",
        span=given.place,
        hint=f"operators are given constants, or variables of a graph beside them: graph {{ … ?{given.name} }}",
    )


def rename_term(term: Term, names: Sequence[str]) -> Term:
    """A term with its variables called by these names, as it was written; the same where there are none."""
    if not names:
        return term
    by_number = {str(number): name for number, name in enumerate(names, 1)}
    graph = term.graph
    if graph is not None:
        own = {name: by_number.get(name, name) for name in graph_variables(graph)}
        graph = renamed_graph(graph, own)
    named = (
        replace(call, arguments=tuple(_renamed_given(one, by_number) for one in call.arguments))
        for call in term.calls
    )
    calls = tuple(_renamed_call(call, by_number) for call in named)
    return Term(calls, tuple(_renamed_constraint(one, by_number) for one in term.constraints), graph=graph)


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
