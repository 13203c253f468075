"""Bind a `create feed` statement to the feeds, operators and prefixes that its names denote.

In: the statement and the names. Out: the query node, the canonical text and the stored form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runnel.algebra.nodes.query import Node
from runnel.catalog.declared.bulk_insert import encode_feed
from runnel.language.binding.bind_query import bind_query
from runnel.language.binding.expand_prefixes import expand_prefixes
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import CreateFeed, FeedTerm, Name, each_term
from runnel.model.operator import OperatorDeclaration


class Names(Protocol):
    """Lookup of names on behalf of an actor."""

    def feed_id(self, name: str) -> int | None:
        """Return the id of a feed, or None."""

    def refuse_table(self, name: Name) -> None:
        """Raise StatementError if a name denotes a table."""

    def names(self) -> Sequence[str]:
        """Return all names of feeds, for error hints."""

    def operator(self, name: str) -> OperatorDeclaration | None:
        """Return the registration of an operator, or None."""

    def operator_names(self) -> Sequence[str]:
        """Return all names of operators, for error hints."""

    def prefixes(self) -> Mapping[str, str]:
        """Return the IRIs of the prefixes that graph patterns can use."""


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A bound query, and the names on which it depends with the values that they had.

    A script is applied more than once (see `commit_change`). As long as these names have the same values, its queries
    need not be bound again, which matters most under the write lock.
    """

    node: Node
    text: str
    encoded: str
    feeds: Mapping[str, int | None]
    operators: Mapping[str, OperatorDeclaration | None]
    prefixes: Mapping[str, str] | None

    def is_current(self, names: Names) -> bool:
        """Return whether all names still have the same values."""
        return (
            all(names.feed_id(name) == feed for name, feed in self.feeds.items())
            and all(names.operator(name) == operator for name, operator in self.operators.items())
            and (self.prefixes is None or self.prefixes == names.prefixes())
        )


@dataclass
class _Lookups:
    """Looks up names, and records the results."""

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
    """Resolve the names in a statement's query (feeds, operators, prefixes) to their current declarations.

    `all feeds` means the feeds of `owner` and of the admin.
    """
    lookups = _Lookups(names)
    for source in (statement.query.source, *(join.window for join in statement.query.joins)):
        for term in each_term(source):
            if isinstance(term, FeedTerm):
                names.refuse_table(term.feed)
    query = expand_prefixes(statement.query, lookups.prefixes)
    node = bind_query(query, lookups.feed_id, names.names, lookups.operator, names.operator_names, owner)
    # Stored without `or replace`: a declaration describes the feed, not how it was changed.
    text = print_statement(CreateFeed(statement.name, query, tags=statement.tags))
    return BoundQuery(node, text, encode_feed(node), lookups.feeds, lookups.operators, lookups.used_prefixes)
