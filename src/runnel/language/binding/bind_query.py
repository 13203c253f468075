"""Binding of queries. In: a parsed query, and functions that look up names. Out: a query node, or an error."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runnel.algebra.nodes.expressions import Expression, conjunction
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union, reads
from runnel.algebra.semantics.joins import Join
from runnel.errors import DuplicateNameError, UnknownNameError
from runnel.language.binding.bind_operators import FindOperator, bind_conditions, needs_binding
from runnel.language.binding.expand_prefixes import expand_prefixes
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.statements import (
    AllTerm,
    Condition,
    FeedTerm,
    GroupTerm,
    Name,
    QueryText,
    Term,
    each_term,
)
from runnel.model.feed import ADMIN
from runnel.model.operator import OperatorDeclaration

FindFeed = Callable[[str], int | None]
ListNames = Callable[[], Iterable[str]]


def no_operator(name: str) -> OperatorDeclaration | None:
    """Find no operator, whatever the name."""
    return None


def bind_query(
    query: QueryText,
    resolve: FindFeed,
    names: ListNames,
    operators: FindOperator = no_operator,
    operator_names: ListNames = tuple,
    owner: int = ADMIN,
) -> Node:
    """Build the node of a query.

    A condition on a variable filters the term that the variable names (RoSeS §3.1, §3.2).

    `resolve` returns the ID of a feed by its name, and `operators` the registration of an operator. `names` and
    `operator_names` list all names; they are called only for suggestions in errors. `all feeds` stands for the feeds
    that `owner` may read.

    >>> from runnel.language.grammar.parser import parse
    >>> query = parse("create feed Rock from (A | B as $b) where $b[false]")[0].statement.query
    >>> bind_query(query, {"A": 1, "B": 2}.get, lambda: ["A", "B"])
    Union(inputs=(Read(feed=1), Filter(input=Read(feed=2), condition=Truth(value=False))))
    """
    query = expand_prefixes(query)
    variables = _collect_variables(query.source, *(clause.window for clause in query.joins))
    conditions: dict[str | None, list[Expression]] = {}
    bound: Sequence[Condition] = query.conditions
    if any(needs_binding(condition.expression) for condition in bound):
        bound = bind_conditions(bound, operators, operator_names)
    for condition in bound:
        variable = condition.variable
        if variable is not None and variable.text not in variables:
            raise _unknown_variable(variable, variables)
        conditions.setdefault(variable.text if variable else None, []).append(condition.expression)
    binder = _Binder(conditions, resolve, names, owner)
    joins = _bind_joins(query, binder)
    # Filters come before joins: they read only the item, so both commute (RoSeS §4.3), and joins are expensive.
    node = _add_filter(binder.bind(query.source, joins), conditions.get(None))
    for join in joins.get(None, ()):
        node = Gated(node, *join)
    return node if query.gate is None else Gated(node, query.gate)


def find_cycle(feed: int, node: Node, definitions: Mapping[int, Node]) -> list[int] | None:
    """Return the shortest path of feeds by which `node` reads `feed`, or None if it does not.

    The path begins with a feed that the node reads directly and ends with `feed`. `definitions` maps virtual feeds to
    their nodes.

    >>> find_cycle(1, Read(3), {2: Read(1), 3: Read(2)})
    [3, 2, 1]
    """
    came_from: dict[int, int | None] = dict.fromkeys(reads(node))
    waiting = deque(came_from)
    while waiting:
        current = waiting.popleft()
        if current == feed:
            return _trace_path(current, came_from)
        definition = definitions.get(current)
        for read in reads(definition) if definition is not None else ():
            if read not in came_from:
                came_from[read] = current
                waiting.append(read)
    return None


def _trace_path(last: int, came_from: Mapping[int, int | None]) -> list[int]:
    path = [last]
    while (previous := came_from[path[-1]]) is not None:
        path.append(previous)
    return path[::-1]


BoundJoins = Mapping[str | None, Sequence[tuple[Join, Node]]]
"""The joins of the parts of a query, by variable; those of the whole query have none."""


def _bind_joins(query: QueryText, binder: _Binder) -> BoundJoins:
    """Bind the windows of a query's joins, and name the annotations."""
    joinable = _collect_variables(query.source)
    joins: dict[str | None, list[tuple[Join, Node]]] = {}
    named: set[str] = set()
    for number, clause in enumerate(query.joins, 1):
        if clause.variable.text not in joinable:
            raise _not_joinable(clause.variable, joinable)
        name = clause.window.variable.text if clause.window.variable else f"join{number}"
        if name in named:
            raise DuplicateNameError(
                f"two joins of this query are called {name}",
                span=clause.span,
                hint="name the window of one of them: join last … on … as $photos",
            )
        named.add(name)
        is_whole = query.source.variable is not None and query.source.variable.text == clause.variable.text
        join = Join(clause.extent, clause.condition, name), binder.bind(clause.window)
        joins.setdefault(None if is_whole else clause.variable.text, []).append(join)
    return joins


def _not_joinable(variable: Name, joinable: Mapping[str, Name]) -> UnknownNameError:
    error = _unknown_variable(variable, joinable)
    return UnknownNameError(
        f"`with` must name a variable of the `from` clause, and ${variable.text} is not one",
        span=variable.span,
        hint=error.hint,
    )


def _collect_variables(*sources: Term) -> dict[str, Name]:
    """Return the variables of a `from` clause and of windows. Raise DuplicateNameError if one is defined twice."""
    variables: dict[str, Name] = {}
    for term in (term for source in sources for term in each_term(source)):
        if term.variable is None:
            continue
        if term.variable.text in variables:
            raise DuplicateNameError(
                f"the variable ${term.variable.text} is defined twice",
                span=max(
                    term.variable.span, variables[term.variable.text].span, key=lambda span: (span.line, span.column)
                ),
                hint="rename one of the two variables",
            )
        variables[term.variable.text] = term.variable
    return variables


def _unknown_variable(variable: Name, variables: Mapping[str, Name]) -> UnknownNameError:
    hint = did_you_mean(f"${variable.text}", [f"${name}" for name in variables])
    if hint is None and variables:
        hint = f"the from clause defines {', '.join(f'${name}' for name in list(variables)[:5])}"
    return UnknownNameError(
        f"there is no variable ${variable.text}",
        span=variable.span,
        hint=hint or f"define it after a feed or a group of the from clause: as ${variable.text}",
    )


@dataclass(frozen=True, slots=True)
class _Binder:
    """Binds the terms of a query to feeds, with the conditions on their variables."""

    conditions: Mapping[str | None, list[Expression]]
    find_feed: FindFeed
    list_names: ListNames
    owner: int

    def bind(self, term: Term, joins: BoundJoins = MappingProxyType({})) -> Node:
        """Return the node of a term, with the conditions and then the joins of its variable."""
        node: Node
        match term:
            case FeedTerm(feed):
                node = Read(_find_feed(feed, self.find_feed, self.list_names))
            case AllTerm(tags):
                node = ReadAll(self.owner, tags)
            case GroupTerm(terms):
                inputs = tuple(self.bind(each, joins) for each in terms)
                node = inputs[0] if len(inputs) == 1 else Union(inputs)
        if term.variable is None:
            return node
        node = _add_filter(node, self.conditions.get(term.variable.text))
        for join in joins.get(term.variable.text, ()):
            node = Gated(node, *join)
        return node


def _add_filter(node: Node, conditions: list[Expression] | None) -> Node:
    if not conditions:
        return node
    # A single condition is already flat. Calling `conjunction` would take longer than the rest of binding.
    return Filter(node, conditions[0] if len(conditions) == 1 else conjunction(conditions))


def _find_feed(feed: Name, resolve: FindFeed, names: ListNames) -> int:
    feed_id = resolve(feed.text)
    if feed_id is None:
        raise UnknownNameError(
            f"there is no feed {feed.text}",
            span=feed.span,
            hint=did_you_mean(feed.text, names())
            or "register or create it first; `show feeds` lists the existing feeds",
        )
    return feed_id
