"""Names to ids. In: a query as parsed, and what the catalog knows. Out: a query node, or why there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runnel.algebra.nodes.expressions import Expression, conjunction
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union, reads
from runnel.algebra.semantics.joins import Join
from runnel.errors import DuplicateNameError, UnknownNameError
from runnel.language.binding.bind_operators import OperatorNamed, asks_operators, bind_conditions
from runnel.language.graphs.iri_prefixes import write_out
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

Resolve = Callable[[str], int | None]
Names = Callable[[], Iterable[str]]


def no_operator(name: str) -> OperatorDeclaration | None:
    """No operator is known by any name."""
    return None


def bind_query(
    query: QueryText,
    resolve: Resolve,
    names: Names,
    operators: OperatorNamed = no_operator,
    operator_names: Names = tuple,
    owner: int = ADMIN,
) -> Node:
    """The node of a query: each condition on a variable filters the term that the variable names (RoSeS §3.1, §3.2).

    `resolve` gives the id of a feed's name, `operators` the registration of an operator's; `names` and
    `operator_names` give all names, and are called only to help after an error. `all feeds` means those that `owner`
    may read.

    >>> from runnel.language.grammar.parser import parse
    >>> query = parse("create feed Rock from (A | B as $b) where $b[false]")[0].statement.query
    >>> bind_query(query, {"A": 1, "B": 2}.get, lambda: ["A", "B"])
    Union(inputs=(Read(feed=1), Filter(input=Read(feed=2), condition=Truth(value=False))))
    """
    query = write_out(query)
    variables = _variables(query)
    conditions: dict[str | None, list[Expression]] = {}
    said: Sequence[Condition] = query.conditions
    if any(asks_operators(condition.expression) for condition in said):
        said = bind_conditions(said, operators, operator_names)
    for condition in said:
        variable = condition.variable
        if variable is not None and variable.text not in variables:
            raise _unknown_variable(variable, variables)
        conditions.setdefault(variable.text if variable else None, []).append(condition.expression)
    binder = _Binder(conditions, resolve, names, owner)
    joins = _bind_joins(query, binder)
    # Filters come before joins: they read the item alone, so they commute (RoSeS §4.3), and joins are expensive.
    node = _filtered(binder.term(query.source, joins), conditions.get(None))
    for join in joins.get(None, ()):
        node = Gated(node, *join)
    return node if query.gate is None else Gated(node, query.gate)


def find_cycle(feed: int, node: Node, definitions: Mapping[int, Node]) -> list[int] | None:
    """The shortest way by which a node would read `feed`: from a feed that the node names to `feed` itself, or None.

    `definitions` holds the nodes of virtual feeds. Each feed is visited once, without recursion.

    >>> find_cycle(1, Read(3), {2: Read(1), 3: Read(2)})
    [3, 2, 1]
    """
    came_from: dict[int, int | None] = dict.fromkeys(reads(node))
    waiting = deque(came_from)
    while waiting:
        current = waiting.popleft()
        if current == feed:
            return _way(current, came_from)
        definition = definitions.get(current)
        for read in reads(definition) if definition is not None else ():
            if read not in came_from:
                came_from[read] = current
                waiting.append(read)
    return None


def _way(last: int, came_from: Mapping[int, int | None]) -> list[int]:
    path = [last]
    while (before := came_from[path[-1]]) is not None:
        path.append(before)
    return path[::-1]


BoundJoins = Mapping[str | None, Sequence[tuple[Join, Node]]]
"""The joins of the parts of a query, by variable; those of the whole query have none."""


def _bind_joins(query: QueryText, binder: _Binder) -> BoundJoins:
    """Bind the windows of a query's joins, and name the annotations."""
    joinable = _names_of(query.source)
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
        join = Join(clause.extent, clause.condition, name), binder.term(clause.window)
        joins.setdefault(None if is_whole else clause.variable.text, []).append(join)
    return joins


def _not_joinable(variable: Name, joinable: Mapping[str, Name]) -> UnknownNameError:
    error = _unknown_variable(variable, joinable)
    return UnknownNameError(
        f"with must name a variable of the from clause, and ${variable.text} is not one",
        span=variable.span,
        hint=error.hint,
    )


def _variables(query: QueryText) -> dict[str, Name]:
    """The variables of a query's `from` and of its windows, each defined once."""
    return _names_of(query.source, *(clause.window for clause in query.joins))


def _names_of(*sources: Term) -> dict[str, Name]:
    found: dict[str, Name] = {}
    for term in (term for source in sources for term in each_term(source)):
        if term.variable is None:
            continue
        if term.variable.text in found:
            raise DuplicateNameError(
                f"the variable ${term.variable.text} names two terms",
                span=max(
                    term.variable.span, found[term.variable.text].span, key=lambda span: (span.line, span.column)
                ),
                hint="give each its own variable",
            )
        found[term.variable.text] = term.variable
    return found


def _unknown_variable(variable: Name, variables: Mapping[str, Name]) -> UnknownNameError:
    hint = did_you_mean(f"${variable.text}", [f"${one}" for one in variables])
    if hint is None and variables:
        hint = f"the from clause defines {', '.join(f'${one}' for one in list(variables)[:5])}"
    return UnknownNameError(
        f"there is no variable ${variable.text}",
        span=variable.span,
        hint=hint or f"name a feed or a group with: as ${variable.text}",
    )


@dataclass(frozen=True, slots=True)
class _Binder:
    """Binds terms: conditions by variable, and the meaning of names."""

    conditions: Mapping[str | None, list[Expression]]
    resolve: Resolve
    names: Names
    owner: int

    def term(self, term: Term, joins: BoundJoins = MappingProxyType({})) -> Node:
        """Return the node of a term, with the conditions on its variable and then the joins of its variable."""
        node: Node
        match term:
            case FeedTerm(feed):
                node = Read(_feed_id(feed, self.resolve, self.names))
            case AllTerm(tags):
                node = ReadAll(self.owner, tags)
            case GroupTerm(terms):
                inputs = tuple(self.term(one, joins) for one in terms)
                node = inputs[0] if len(inputs) == 1 else Union(inputs)
        if term.variable is None:
            return node
        node = _filtered(node, self.conditions.get(term.variable.text))
        for join in joins.get(term.variable.text, ()):
            node = Gated(node, *join)
        return node


def _filtered(node: Node, conditions: list[Expression] | None) -> Node:
    if not conditions:
        return node
    # One condition is flat already; to find out again takes longer than all the rest of binding.
    return Filter(node, conditions[0] if len(conditions) == 1 else conjunction(conditions))


def _feed_id(feed: Name, resolve: Resolve, names: Names) -> int:
    found = resolve(feed.text)
    if found is None:
        raise UnknownNameError(
            f"there is no feed {feed.text}",
            span=feed.span,
            hint=did_you_mean(feed.text, names()) or "register or create it first; show feeds lists what there is",
        )
    return found
