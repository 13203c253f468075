"""The state of a script that is being declared: its actor, names and quotas, and its rows that are not written yet.

Statements look up names here, record which feeds they affect, and add new feeds and subscriptions with their future
ids. Lookups return these pending rows in addition to the catalog's. In the end, all pending rows are written
together. A script that only adds things needs the catalog's write lock only for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node, hide_gates, reads
from runnel.algebra.nodes.render import render_name
from runnel.catalog.access.consents import Key, WantedConsent, consent_of, pending_count
from runnel.catalog.access.owners import Owner, QuotaAllowance, owner_by_id
from runnel.catalog.declared import feeds, operators, subscriptions
from runnel.catalog.declared.bulk_insert import (
    NewFeed,
    NewSubscription,
    add_feeds,
    add_subscriptions,
    encode_feed,
)
from runnel.catalog.declared.changes import next_number
from runnel.catalog.declared.feed_groups import SourceFeed, group_readers
from runnel.catalog.declared.prefixes import all_prefixes
from runnel.catalog.delivery import ledger
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.actors import Actor, check_actor, names_for
from runnel.engine.workspace import Workspace
from runnel.errors import DuplicateNameError, Span, StatementError, UnknownNameError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.statements import Name, RegisterOperator
from runnel.model.feed import HIDDEN, Feed, FeedKind, hidden_name
from runnel.model.operator import OperatorDeclaration
from runnel.model.subscription import Subscription

_BULK_NAMES = 100
"""With more names than this, the targets of all subscriptions are read in one statement."""


class NeedsLockError(Exception):
    """A statement that changes existing rows cannot be applied in a read-only transaction."""


@dataclass
class Pending:
    """A change that is not committed yet: the rows to be added, and the ids of the feeds that it affects.

    `touched` are feeds whose subscriptions or readers change. `redefined` are feeds that get another query, are
    paused or are resumed. `regrouped` are queries that read a group of feeds whose members change, and `reread` are
    those of them whose group gains or loses feeds that may already have items.
    """

    connection: Connection
    touched: set[int] = field(default_factory=set)
    redefined: set[int] = field(default_factory=set)
    regrouped: set[int] = field(default_factory=set)
    reread: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    feeds: dict[int, NewFeed] = field(default_factory=dict)
    subscriptions: list[NewSubscription] = field(default_factory=list)
    definitions: dict[int, Node] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """The first id of new rows by table. It is preset if the change was applied before and must get the same ids."""
    added: set[int] = field(default_factory=set)
    """The ids of all new feeds, written or not."""
    _next: dict[str, int] = field(default_factory=dict)
    _written: set[str] = field(default_factory=set)

    def feed_id(self) -> int:
        """Return the id of the next new feed."""
        return self._start("feeds") + len(self.feeds)

    def subscription_id(self) -> int:
        """Return the number of the next new subscription."""
        return self._start("subscriptions") + len(self.subscriptions)

    def _start(self, table: str) -> int:
        if table not in self._next:
            next_id = next_number(self.connection, table)
            self._next[table] = self.numbers.get(table, next_id) if table not in self._written else next_id
            self.numbers.setdefault(table, self._next[table])
        return self._next[table]

    def add_feed(self, new: NewFeed) -> None:
        """Add a pending feed."""
        self.feeds[new.id] = new
        self.added.add(new.id)
        if new.node is not None:
            self.definitions[new.id] = new.node

    def fits(self, connection: Connection) -> bool:
        """Return whether the ids of the pending rows are still the next free ids in the catalog."""
        return all(next_number(connection, table) == first for table, first in self._next.items())

    def write(self, connection: Connection, sequence: int, matched: Set[int] = frozenset()) -> None:
        """Write all pending rows. Subscriptions and the matching of feeds in `matched` start after `sequence`."""
        add_feeds(connection, list(self.feeds.values()), sequence, matched)
        add_subscriptions(connection, self.subscriptions, sequence)
        self.feeds.clear()
        self.subscriptions.clear()
        self._written |= self._next.keys()
        self._next.clear()

    @property
    def changed(self) -> set[int]:
        """The ids of the queries whose definition changes."""
        return self.redefined | (self.regrouped - self.dropped)

    def source_feeds(self) -> list[SourceFeed]:
        """Return the new source feeds that can be members of groups of feeds."""
        return [
            SourceFeed(feed.id, feed.owner, frozenset(feed.tags))
            for feed in self.feeds.values()
            if feed.kind is FeedKind.SOURCE and feed.origin is None
        ]

    # --- lookups in the pending rows and in the catalog -------------------------------------------------------------

    def all_sources(self, ids: Iterable[int]) -> set[int]:
        """Return these feeds and all feeds that they read, directly or indirectly."""
        sources = set(ids)
        # A pending feed can read a feed of the catalog, but not the reverse.
        waiting = [feed for feed in sources if feed in self.definitions]
        while waiting:
            for source in reads(self.definitions[waiting.pop()]):
                if source not in sources:
                    sources.add(source)
                    if source in self.definitions:
                        waiting.append(source)
        return sources | feeds.all_sources(self.connection, sources - self.feeds.keys())

    def live_kinds(self, ids: Set[int]) -> dict[int, FeedKind]:
        """Return the kinds of these feeds, without dropped feeds."""
        new = {feed: self.feeds[feed].kind for feed in ids & self.feeds.keys()}
        return feeds.live_kinds(self.connection, ids - self.feeds.keys()) | new

    def reader_pairs(self, ids: Set[int]) -> list[tuple[int, int]]:
        """Return the pairs (reader, feed) of these feeds and the feeds that read them directly."""
        new = [(reader, source) for reader, node in self.definitions.items() for source in set(reads(node)) & ids]
        return new + feeds.reader_pairs(self.connection, ids - self.feeds.keys())

    def subscribed_among(self, ids: Set[int]) -> set[int]:
        """Return those of these feeds that have a direct subscription."""
        new = {subscription.feed for subscription in self.subscriptions} & ids
        return new | subscriptions.subscribed_among(self.connection, ids - self.feeds.keys())


class DeclarationScope:
    """The state that the declarations of a script share: the actor, the quotas, and the pending change.

    If `is_read_only` is set, the connection only reads, and a statement that must write raises NeedsLockError.
    """

    def __init__(
        self,
        workspace: Workspace,
        connection: Connection,
        actor: Actor,
        sheets: Mapping[str, str],
        *,
        registrations: Mapping[RegisterOperator, OperatorDeclaration] = MappingProxyType({}),
        names: Iterable[str] = (),
        is_read_only: bool = False,
        numbers: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Look up all `names` in one statement, which is faster; `numbers` are the first ids of new rows by table."""
        self.workspace = workspace
        self.connection = connection
        self.actor = actor
        self.sheets = sheets
        self.registrations = registrations
        check_actor(connection, actor)
        self.allowance = QuotaAllowance(connection, actor.owner, workspace.settings)
        self.pending = Pending(connection, numbers=dict(numbers))
        self._is_read_only = is_read_only
        # These values can be cached: no other transaction writes while this one holds the write lock, and a change
        # that was prepared in a read-only transaction is checked again before it is committed.
        self.sequence = last_sequence(connection)
        self._owner: Owner | None = None
        looked_up = set(names)
        existing = feeds.feeds_by_names(connection, looked_up, actor.owner) if looked_up else {}
        self._feeds: dict[str, Feed | None] = {name: existing.get(name) for name in looked_up}
        self._is_large = len(looked_up) > _BULK_NAMES
        self._targets: dict[str, int] | None = None
        self._wanted: set[Key] = set()
        self._unanswered: int | None = None
        self._operators: dict[str, OperatorDeclaration] | None = None
        self._prefixes: dict[str, str] | None = None

    def refuse_disabled(self, span: Span) -> None:
        """Raise StatementError if the owner is disabled: nothing is delivered to a disabled owner."""
        if self._owner is None:
            self._owner = owner_by_id(self.connection, self.actor.owner)
        if self._owner.disabled:
            raise StatementError(
                f"the owner {self.actor.name} is disabled and cannot subscribe or materialize feeds",
                span=span,
                hint=f"the admin can enable the owner with `runnel owner disable {self.actor.name} --undo`",
            )

    def write_pending(self) -> None:
        """Write the pending rows, so that the following statements can find and change them in the catalog."""
        if self._is_read_only:
            raise NeedsLockError
        self.pending.write(self.connection, self.sequence)
        self._targets = None

    # --- feeds ---------------------------------------------------------------------------------------------------

    def find_or_none(self, name: str) -> Feed | None:
        """Return the live feed that a name denotes for the actor, or None."""
        if name not in self._feeds:
            self._feeds[name] = feeds.feed_by_name(self.connection, name, self.actor.owner)
        return self._feeds[name]

    def feed_id(self, name: str) -> int | None:
        """Return the id of the live feed that a name denotes for the actor, or None."""
        feed = self.find_or_none(name)
        return None if feed is None else feed.id

    def find(self, name: Name) -> Feed:
        """Return the live feed that a name denotes for the actor, or raise UnknownNameError with a similar name."""
        feed = self.find_or_none(name.text)
        if feed is None:
            near = did_you_mean(name.text, self.names())
            hint = near or "`show feeds` lists all feeds"
            raise UnknownNameError(f"there is no feed {name.text}", span=name.span, hint=hint)
        return feed

    def find_stream(self, name: Name) -> Feed:
        """Return the feed like `find`, and raise StatementError if it is a table."""
        self.refuse_table(name)
        return self.find(name)

    def refuse_table(self, name: Name) -> None:
        """Raise StatementError if a name denotes a table, where only a feed of items can be read."""
        feed = self.find_or_none(name.text)
        if feed is not None and feed.kind is FeedKind.TABLE:
            raise StatementError(
                f"{name.text} is a table, and feeds over tables are not built yet",
                span=name.span,
                hint=f"`show rows {render_name(name.text)}` shows its rows; a feed can read other feeds",
            )

    def find_own_feed(self, name: Name) -> Feed:
        """Return the feed like `find_own`, and raise StatementError if it is a table."""
        feed = self.find_own(name)
        if feed.kind is FeedKind.TABLE:
            raise StatementError(
                f"{name.text} is a table",
                span=name.span,
                hint=f"`drop table {render_name(name.text)}` drops it; tables cannot be tagged or paused",
            )
        return feed

    def find_own_table(self, name: Name) -> Feed:
        """Return the actor's own table with a name, or raise StatementError."""
        feed = self.find_own(name)
        if feed.kind is not FeedKind.TABLE:
            raise StatementError(
                f"{name.text} is a feed, not a table",
                span=name.span,
                hint=f"`drop feed {render_name(name.text)}` drops a feed; `show tables` lists all tables",
            )
        return feed

    def find_own(self, name: Name) -> Feed:
        """Return the feed like `find`, and raise StatementError if the actor does not own it."""
        feed = self.find(name)
        if feed.owner != self.actor.owner:
            raise StatementError(
                f"{name.text} belongs to the admin; you can read it but not change it",
                span=name.span,
                hint="register a feed of your own",
            )
        return feed

    def own_or_none(self, name: str) -> Feed | None:
        """Return the actor's own live feed with a name, or None."""
        feed = self.find_or_none(name)
        return feed if feed is not None and feed.owner == self.actor.owner else None

    def refuse_duplicate(self, name: Name) -> None:
        """Raise DuplicateNameError if the actor owns a feed with this name. Owners may reuse names of the admin."""
        existing = self.own_or_none(name.text)
        if existing is not None:
            hint = "use `create or replace feed` to change it" if existing.kind is FeedKind.VIRTUAL else None
            noun = "table" if existing.kind is FeedKind.TABLE else "feed"
            raise DuplicateNameError(f"a {noun} {name.text} already exists", span=name.span, hint=hint)

    def add(self, new: NewFeed) -> None:
        """Add a pending feed. The following statements can refer to it."""
        self.pending.add_feed(new)
        self._feeds[new.name] = Feed(
            new.id,
            new.name,
            new.kind,
            new.statement,
            new.address,
            owner=new.owner,
            every=new.every,
            origin=new.origin,
            sheet=new.sheet,
            title=new.title,
            home=new.home,
            open_items=new.open_items,
        )

    def hide_gates(self, node: Node) -> Node:
        """Return a definition in which windows, and gates below others, are hidden feeds. Add those that are new.

        Equal definitions share one hidden feed, also across owners.
        """
        return hide_gates(node, self._hidden_feed)

    def _hidden_feed(self, node: Node) -> int:
        encoded = encode_feed(node)
        name = hidden_name(encoded)
        if name not in self._feeds:
            self._feeds[name] = feeds.feed_by_name(self.connection, name, HIDDEN)
        existing = self._feeds[name]
        if existing is not None:
            return existing.id
        feed = self.pending.feed_id()
        self.add(NewFeed(feed, name, FeedKind.VIRTUAL, name, node=node, owner=HIDDEN, encoded=encoded))
        return feed

    def hidden_definitions(self, ids: Iterable[int]) -> list[Node]:
        """Return the definitions of the hidden feeds among these ids, whether they are pending or in the catalog."""
        own = set(ids)
        pending = [feed for feed in own & self.pending.feeds.keys() if self.pending.feeds[feed].owner == HIDDEN]
        existing = feeds.hidden_among(self.connection, own - self.pending.feeds.keys())
        nodes = feeds.own_definitions(self.connection, existing)
        return [*(self.pending.definitions[feed] for feed in sorted(pending)), *nodes.values()]

    def drop_unread(self) -> None:
        """Drop the hidden feeds that no feed reads any more, among those that the change affects."""
        while True:
            hidden = feeds.hidden_among(self.connection, self.pending.touched - self.pending.dropped)
            unread = hidden - {source for _, source in feeds.reader_pairs(self.connection, hidden)}
            if not unread:
                return
            for feed in sorted(unread):
                feeds.drop_feed(self.connection, feed)
            self.forget_feeds()
            self.pending.dropped |= unread

    def forget_feed(self, name: str) -> None:
        """Clear a name from the cache, because its feed was changed or dropped."""
        self._feeds.pop(name, None)

    def forget_feeds(self) -> None:
        """Clear the cache of names, because many feeds were changed."""
        self._feeds.clear()

    def names(self) -> list[str]:
        """Return all feed names that the actor can use. There may be many, so call it only for error hints."""
        new = {feed.name for feed in self.pending.feeds.values()}
        return sorted(new.union(feeds.live_names(self.connection, self.actor.owner)))

    def visible_names(self, ids: Iterable[int]) -> list[str]:
        """Return the names of those of these feeds that the actor can see, sorted."""
        names = names_for(self.connection, self.actor)
        return sorted(names[feed] for feed in ids if feed in names)

    def regroup(self, feed: SourceFeed) -> None:
        """Record that the queries which read a group with this source feed change, because it joins or leaves."""
        readers = group_readers(self.connection, feed)
        self.pending.regrouped |= readers
        if feed.id not in self.pending.added:
            self.pending.reread |= readers

    # --- prefixes and operators ----------------------------------------------------------------------------------

    def prefixes(self) -> dict[str, str]:
        """Return the IRIs of the prefixes for graph patterns."""
        if self._prefixes is None:
            self._prefixes = all_prefixes(self.connection)
        return self._prefixes

    def forget_prefixes(self) -> None:
        """Clear the cache of prefixes, because they were changed."""
        self._prefixes = None

    def operator(self, name: str) -> OperatorDeclaration | None:
        """Return the live registration of an operator, or None."""
        return self._live_operators().get(name)

    def operator_names(self) -> list[str]:
        """Return the names of all operators."""
        return list(self._live_operators())

    def forget_operators(self) -> None:
        """Clear the cache of operators, because they were changed."""
        self._operators = None

    def _live_operators(self) -> dict[str, OperatorDeclaration]:
        if self._operators is None:
            self._operators = operators.live_operators(self.connection)
        return self._operators

    # --- subscriptions -------------------------------------------------------------------------------------------

    def subscription(self, number: int, span: Span) -> Subscription:
        """Return a live subscription of the actor, or of anyone if the actor is the admin, by its number."""
        subscription = subscriptions.subscription_by_number(self.connection, number)
        if subscription is None or not self.actor.holds(subscription):
            raise UnknownNameError(
                f"there is no subscription {number}", span=span, hint="`show subscriptions` lists your subscriptions"
            )
        return subscription

    def target_holder(self, target: str) -> int | None:
        """Return the number of a live subscription with this target, or None."""
        if self._targets is None:
            self._targets = {new.target: new.id for new in self.pending.subscriptions if new.target is not None}
            if self._is_large:
                self._targets |= subscriptions.live_targets(self.connection)
        number = self._targets.get(target)
        if number is None and not self._is_large:
            number = subscriptions.subscription_to_target(self.connection, target)
        return number

    def subscribe(self, new: NewSubscription) -> None:
        """Add a pending subscription."""
        self.pending.subscriptions.append(new)
        self.pending.touched.add(new.feed)
        if self._targets is not None and new.target is not None:
            self._targets[new.target] = new.id

    def want_consent(self, wanted: WantedConsent, limit: int) -> bool:
        """Record that a target must confirm. Return False if too many targets of the owner have not confirmed yet."""
        if self.is_confirmed(wanted) or wanted.key in self._wanted:
            return True
        if self._unanswered is None:
            self._unanswered = pending_count(self.connection, wanted.owner)
        consent = consent_of(self.connection, *wanted.key)
        if consent is None or consent.expires <= now(self.connection):
            if self._unanswered >= limit:
                return False
            self._unanswered += 1
        self._wanted.add(wanted.key)
        return True

    def is_confirmed(self, wanted: WantedConsent) -> bool:
        """Return whether messages can be sent to a target without waiting for a confirmation."""
        if wanted.is_exempt:
            return True
        consent = consent_of(self.connection, *wanted.key)
        return consent is not None and consent.is_confirmed

    def end(self, ended: Iterable[Subscription]) -> list[int]:
        """End subscriptions, and return the numbers of those that are not internal."""
        numbers = []
        for subscription in ended:
            subscriptions.end_subscription(self.connection, subscription.id)
            ledger.drop_cursor(self.connection, subscription.id)
            self.pending.touched.add(subscription.feed)
            if not subscription.is_internal:
                numbers.append(subscription.id)
                if subscription.owner == self.actor.owner:
                    self.allowance.give_back("subscriptions")
        return numbers
