"""What a script has declared and the catalog does not hold yet: feeds and subscriptions under the ids they will have.

Statements add to it, lookups see it beside the catalog, and in the end all of it is written at once. As long as it is
only new things, none of this needs the catalog's write lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node, reads
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.declared.bulk_insert import NewFeed, NewSubscription, add_feeds, add_subscriptions
from runnel.catalog.declared.changes import next_number
from runnel.catalog.declared.feed_groups import SourceFeed
from runnel.model.feed import FeedKind


class NeedsLockError(Exception):
    """A statement that changes what is there cannot be applied in a transaction that only reads."""


@dataclass
class Pending:
    """The catalog as one transaction sees it, and what is to be added to it."""

    connection: Connection
    feeds: dict[int, NewFeed] = field(default_factory=dict)
    subscriptions: list[NewSubscription] = field(default_factory=list)
    definitions: dict[int, Node] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """The first id of new rows by table; given, where the same change was applied before with these ids."""
    added: set[int] = field(default_factory=set)
    """All new feeds, written or not."""
    _next: dict[str, int] = field(default_factory=dict)
    _written: set[str] = field(default_factory=set)

    def feed_id(self) -> int:
        """The id that the next new feed has."""
        return self._start("feeds") + len(self.feeds)

    def subscription_id(self) -> int:
        """The number that the next new subscription has."""
        return self._start("subscriptions") + len(self.subscriptions)

    def _start(self, table: str) -> int:
        if table not in self._next:
            following = next_number(self.connection, table)
            self._next[table] = self.numbers.get(table, following) if table not in self._written else following
            self.numbers.setdefault(table, self._next[table])
        return self._next[table]

    def add_feed(self, new: NewFeed) -> None:
        """One more feed."""
        self.feeds[new.id] = new
        self.added.add(new.id)
        if new.node is not None:
            self.definitions[new.id] = new.node

    def add_subscription(self, new: NewSubscription) -> None:
        """One more subscription."""
        self.subscriptions.append(new)

    def fits(self, connection: Connection) -> bool:
        """Whether the ids that were given are still those that are next in a catalog."""
        return all(next_number(connection, table) == first for table, first in self._next.items())

    def write(self, connection: Connection, sequence: int, matched: Set[int] = frozenset()) -> None:
        """Write all of it; the feeds among `matched` are matched after a sequence, where subscriptions start too."""
        add_feeds(connection, list(self.feeds.values()), sequence, matched)
        add_subscriptions(connection, self.subscriptions, sequence)
        self.feeds.clear()
        self.subscriptions.clear()
        self._written |= self._next.keys()
        self._next.clear()

    def source_feeds(self) -> list[SourceFeed]:
        """The new feeds that groups of feeds have."""
        return [
            SourceFeed(one.id, one.owner, frozenset(one.tags))
            for one in self.feeds.values()
            if one.kind is FeedKind.SOURCE and one.origin is None
        ]

    # --- lookups that see both ------------------------------------------------------------------------------------

    def all_sources(self, some: Iterable[int]) -> set[int]:
        """These feeds and all that they read, directly or through others."""
        found = set(some)
        # What is new may read what is old, never the other way round.
        waiting = [one for one in found if one in self.definitions]
        while waiting:
            for source in reads(self.definitions[waiting.pop()]):
                if source not in found:
                    found.add(source)
                    if source in self.definitions:
                        waiting.append(source)
        return found | feeds.all_sources(self.connection, found - self.feeds.keys())

    def live_kinds(self, some: Set[int]) -> dict[int, FeedKind]:
        """The kinds of those of the feeds that are not dropped."""
        new = {one: self.feeds[one].kind for one in some & self.feeds.keys()}
        return feeds.live_kinds(self.connection, some - self.feeds.keys()) | new

    def reader_pairs(self, some: Set[int]) -> list[tuple[int, int]]:
        """The pairs (reader, feed) of these feeds and those that read them directly."""
        new = [(reader, source) for reader, node in self.definitions.items() for source in set(reads(node)) & some]
        return new + feeds.reader_pairs(self.connection, some - self.feeds.keys())

    def subscribed_among(self, some: Set[int]) -> set[int]:
        """Those of the feeds that somebody subscribes to directly."""
        new = {one.feed for one in self.subscriptions} & some
        return new | subscriptions.subscribed_among(self.connection, some - self.feeds.keys())
