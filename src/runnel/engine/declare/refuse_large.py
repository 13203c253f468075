"""Limits on the size of queries: what one owner declares must not take long to compile for everybody.

In: a query as parsed. Out: its size, or a refusal. The size is counted, not timed, so a query that is accepted once
is always accepted. Limits are for owners; like quotas they do not bind the admin.
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
    """How many feeds and conditions a query names, and how many constants: entries of lists, words, graph edges."""

    conditions: int
    constants: int

    @property
    def total(self) -> int:
        """A number roughly proportional to the cost of compiling the query."""
        return self.conditions + self.constants


class SizeLimits:
    """Measures the queries of one script, and refuses what is too large for its actor."""

    def __init__(self, settings: Settings, actor: Actor) -> None:
        self._settings = settings
        self._is_limited = not actor.is_admin
        self._total = 0
        self._changes = 0

    def check(self, query: QueryText, span: Span) -> None:
        """Count one more query; raises a StatementError where it, or the script so far, is too large."""
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
        """Count one more declaration that changes or ends something; it is written under the write lock."""
        self._changes += 1
        most = self._settings.owner_script_changes
        if self._is_limited and self._changes > most:
            raise StatementError(
                f"a script may have at most {most:,} declarations that replace, drop, pause or end something",
                hint="declare them in several scripts, or ask the admin to raise owner_script_changes",
            )


def size_of(query: QueryText) -> QuerySize:
    """The size of a query as it was written.

    >>> from runnel.language.grammar.parser import parse
    >>> [parsed] = parse("create feed Q from A | B where n in (1, 2, 3) and title contains 'rock music'")
    >>> size_of(parsed.statement.query)
    QuerySize(conditions=4, constants=5)
    """
    conditions = sum(not isinstance(term, GroupTerm) for term in each_term(query.source))
    constants = 0
    for condition in query.conditions:
        for part in leaves(condition.expression):
            conditions += 1
            constants += _constants(part)
    return QuerySize(conditions, constants)


def _refuse(count: int, most: int, what: str, setting: str, span: Span) -> None:
    if count > most:
        raise StatementError(
            f"a query may have at most {most:,} {what}, this one has {count:,}",
            span=span,
            hint=f"split it into several feeds and read their union, or ask the admin to raise {setting}",
        )


def _constants(part: Expression) -> int:
    match part:
        case In():
            return len(part.constants)
        case Contains() | ContainsStems() | Similar():
            return len(part.words)
        case ContainsPattern():
            return len(part.patterns)
        case InNetwork():
            return len(part.networks)
        case Shares():
            return len(part.links)
        case ItemPattern():
            return part.size
        case Call() | Constraint() | CallTerm():
            return 1
        case _:
            return 0
