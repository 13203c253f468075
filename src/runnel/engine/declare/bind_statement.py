"""Binding a `create feed` statement to what its names mean.

In: the statement and the names. Out: the node, the canonical text and the stored form, in one call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runnel.algebra.nodes.query import Node
from runnel.catalog.declared.bulk_insert import encode_feed
from runnel.errors import StatementError
from runnel.language.binding.bind_query import bind_query
from runnel.language.graphs.iri_prefixes import expand_prefixes
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import CreateFeed
from runnel.model.operator import OperatorDeclaration


class Names(Protocol):
    """What names mean to an actor."""

    def feed_id(self, name: str) -> int | None:
        """The id of a feed."""

    def names(self) -> Sequence[str]:
        """All names of feeds, to help after an error."""

    def operator(self, name: str) -> OperatorDeclaration | None:
        """The registration of an operator."""

    def operator_names(self) -> Sequence[str]:
        """All names of operators."""

    def prefixes(self) -> Mapping[str, str]:
        """The prefixes that graph patterns may use."""


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """The query of a statement, bound, and the names that this depends on.

    A script is applied more than once (see `commit_change`). While its names mean the same, its queries need not be
    bound again, least of all under the write lock.
    """

    node: Node
    text: str
    encoded: str
    feeds: Mapping[str, int | None]
    operators: Mapping[str, OperatorDeclaration | None]
    prefixes: Mapping[str, str] | None

    def is_current(self, names: Names) -> bool:
        """Whether all names still mean the same."""
        return (
            all(names.feed_id(name) == feed for name, feed in self.feeds.items())
            and all(names.operator(name) == one for name, one in self.operators.items())
            and (self.prefixes is None or self.prefixes == names.prefixes())
        )


@dataclass
class _Lookups:
    """Looks names up, and notes what was found."""

    names: Names
    feeds: dict[str, int | None] = field(default_factory=dict)
    operators: dict[str, OperatorDeclaration | None] = field(default_factory=dict)
    used_prefixes: Mapping[str, str] | None = None

    def feed_id(self, name: str) -> int | None:
        self.feeds[name] = self.names.feed_id(name)
        return self.feeds[name]

    def operator(self, name: str) -> OperatorDeclaration | None:
        self.operators[name] = self.names.operator(name)
        return self.operators[name]

    def prefixes(self) -> Mapping[str, str]:
        self.used_prefixes = self.names.prefixes()
        return self.used_prefixes


def bind(statement: CreateFeed, names: Names, owner: int) -> BoundQuery:
    """Bind the query of a statement to what its names mean now; groups of feeds are those of the owner."""
    for clause in statement.query.joins:
        raise StatementError(
            "a workspace cannot run joins yet",
            span=clause.span,
            hint="`runnel.compile` evaluates joins on items that a program gives it",
        )
    found = _Lookups(names)
    query = expand_prefixes(statement.query, found.prefixes)
    node = bind_query(query, found.feed_id, names.names, found.operator, names.operator_names, owner)
    # Stored without `or replace`: a declaration describes the feed, not how it was changed.
    text = print_statement(CreateFeed(statement.name, query, tags=statement.tags))
    return BoundQuery(node, text, encode_feed(node), found.feeds, found.operators, found.used_prefixes)
