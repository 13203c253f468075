"""Limits on the size of owners' queries, because every query makes compiling the shared plan take longer.

In: a parsed query. Out: its size, or a StatementError. Sizes are counts, not times, so the same query is always
accepted or always refused. The limits do not apply to the admin.
"""

from __future__ import annotations

from dataclasses import dataclass

from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.expressions import (
    Contains,
    ContainsPattern,
    ContainsStems,
    Expression,
    In,
    InNetwork,
    Shares,
    Similar,
)
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.terms import Term as CallTerm
from runnel.algebra.semantics.close_conditions import leaves
from runnel.engine.actors import Actor
from runnel.errors import Span, StatementError
from runnel.language.syntax.statements import GroupTerm, QueryText, each_term
from runnel.settings import Settings


@dataclass(frozen=True, slots=True)
class QuerySize:
    """The number of feeds and conditions in a query, and of constants: list entries, words and graph edges."""

    conditions: int
    constants: int

    @property
    def total(self) -> int:
        """A number roughly proportional to the cost of compiling the query."""
        return self.conditions + self.constants


class SizeLimits:
    """Counts the sizes of the queries in one script, and refuses queries and scripts that exceed the limits."""

    def __init__(self, settings: Settings, actor: Actor) -> None:
        self._settings = settings
        self._is_limited = not actor.is_admin
        self._total = 0
        self._changes = 0

    def check(self, query: QueryText, span: Span) -> None:
        """Count a query. Raise StatementError if it, or the script so far, is too large."""
        if not self._is_limited:
            return
        size = size_of(query)
        settings = self._settings
        _refuse(
            size.conditions, settings.owner_query_conditions, "conditions and feeds", "owner_query_conditions", span
        )
        _refuse(size.constants, settings.owner_query_constants, "constants", "owner_query_constants", span)
        self._total += size.total
        if self._total > settings.owner_script_conditions:
            raise StatementError(
                f"the queries of this script have more than {settings.owner_script_conditions:,} conditions and"
                " constants in all",
                span=span,
                hint="declare them in several scripts, or ask the admin to raise owner_script_conditions",
            )

    def count_change(self) -> None:
        """Count a declaration that changes existing rows, for which the write lock is held longer."""
        self._changes += 1
        limit = self._settings.owner_script_changes
        if self._is_limited and self._changes > limit:
            raise StatementError(
                f"a script can contain at most {limit:,} declarations that change, drop, pause or end something",
                hint="declare them in several scripts, or ask the admin to raise owner_script_changes",
            )


def size_of(query: QueryText) -> QuerySize:
    """Return the size of a query as it was written.

    >>> from runnel.language.grammar.parser import parse
    >>> [parsed] = parse("create feed Q from A | B where n in (1, 2, 3) and title contains 'rock music'")
    >>> size_of(parsed.statement.query)
    QuerySize(conditions=4, constants=5)
    """
    conditions = sum(not isinstance(term, GroupTerm) for term in each_term(query.source))
    constants = 0
    for condition in query.conditions:
        for leaf in leaves(condition.expression):
            conditions += 1
            constants += _count_constants(leaf)
    return QuerySize(conditions, constants)


def _refuse(count: int, limit: int, noun: str, setting: str, span: Span) -> None:
    if count > limit:
        raise StatementError(
            f"a query can have at most {limit:,} {noun}, this one has {count:,}",
            span=span,
            hint=f"split it into several feeds and read their union, or ask the admin to raise {setting}",
        )


def _count_constants(leaf: Expression) -> int:
    match leaf:
        case In():
            return len(leaf.constants)
        case Contains() | ContainsStems() | Similar():
            return len(leaf.words)
        case ContainsPattern():
            return len(leaf.patterns)
        case InNetwork():
            return len(leaf.networks)
        case Shares():
            return len(leaf.links)
        case ItemPattern():
            return leaf.size
        case Call() | Constraint() | CallTerm():
            return 1
        case _:
            return 0
