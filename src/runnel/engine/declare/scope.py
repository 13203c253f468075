"""One open transaction as an actor sees it: names, quotas, and what a script has declared and not written yet.

Statements look names up here, note what they touch, and add new feeds and subscriptions under the ids that they will
have. Lookups see these next to the catalog, and in the end all of them are written at once. As long as a script
only adds things, none of this needs the catalog's write lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node, reads
from runnel.catalog.access.consents import Key, WantedConsent, consent_of, pending_count
from runnel.catalog.access.owners import Owner, QuotaAllowance, owner_by_id
from runnel.catalog.declared import feeds, operators, subscriptions
from runnel.catalog.declared.bulk_insert import NewFeed, NewSubscription, add_feeds, add_subscriptions
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
from runnel.model.feed import Feed, FeedKind
from runnel.model.operator import OperatorDeclaration
from runnel.model.subscription import Subscription

_MANY = 100
"""Names from which on all targets are read at once, rather than asked for one by one."""


class NeedsLockError(Exception):
    """A statement that changes what is there cannot be applied in a transaction that only reads."""


@dataclass
class Pending:
    """A change to the catalog as one transaction sees it: rows that are to be added, and the feeds that it concerns.

    `touched` are feeds whose subscriptions or readers change, `redefined` those that get another query, are paused or
    are resumed, and `regrouped` queries that read a group of feeds which has other members now.
    """

    connection: Connection
    touched: set[int] = field(default_factory=set)
    redefined: set[int] = field(default_factory=set)
    regrouped: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
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

    @property
    def changed(self) -> set[int]:
        """The queries that are defined differently now."""
        return self.redefined | (self.regrouped - self.dropped)

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


class DeclarationScope:
    """What a script's declarations share: the actor, the quotas, and what the plan must be told at the end.

    New feeds and subscriptions are `pending` until all of them are written together. `ahead` is a scope on a
    connection that only reads: what needs more raises NeedsLock.
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
        ahead: bool = False,
        numbers: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`names` are looked up at once, which is faster than one by one; `numbers` are the ids of new rows."""
        self.workspace = workspace
        self.connection = connection
        self.actor = actor
        self.sheets = sheets
        self.registrations = registrations
        check_actor(connection, actor)
        self.allowance = QuotaAllowance(connection, actor.owner, workspace.settings)
        self.pending = Pending(connection, numbers=dict(numbers))
        self._ahead = ahead
        # Nobody else can accept or declare anything while this transaction is open, so these may be kept; and whoever
        # prepares a change ahead of one looks again later.
        self.sequence = last_sequence(connection)
        self._owner: Owner | None = None
        wanted = set(names)
        known = feeds.feeds_by_names(connection, wanted, actor.owner) if wanted else {}
        self._feeds: dict[str, Feed | None] = {name: known.get(name) for name in wanted}
        self._is_large = len(wanted) > _MANY
        self._targets: dict[str, int] | None = None
        self._wanted: set[Key] = set()
        self._unanswered: int | None = None
        self._operators: dict[str, OperatorDeclaration] | None = None
        self._prefixes: dict[str, str] | None = None

    def refuse_disabled(self, span: Span) -> None:
        """Nothing of a disabled owner is served, so nothing that is to be served can begin for one."""
        if self._owner is None:
            self._owner = owner_by_id(self.connection, self.actor.owner)
        if self._owner.disabled:
            raise StatementError(
                f"the owner {self.actor.name} is disabled: nothing would be sent",
                span=span,
                hint=f"`runnel owner disable {self.actor.name} --undo` takes that back",
            )

    def settle(self) -> None:
        """Write what is pending, so that what follows finds it in the catalog."""
        if self._ahead:
            raise NeedsLockError
        self.pending.write(self.connection, self.sequence)
        self._targets = None

    # --- feeds ---------------------------------------------------------------------------------------------------

    def known(self, name: str) -> Feed | None:
        """The live feed that a name means to the actor."""
        if name not in self._feeds:
            self._feeds[name] = feeds.feed_by_name(self.connection, name, self.actor.owner)
        return self._feeds[name]

    def feed_id(self, name: str) -> int | None:
        """The id of the live feed that a name means to the actor."""
        found = self.known(name)
        return None if found is None else found.id

    def find(self, name: Name) -> Feed:
        """As `known`; raises UnknownName with a near name."""
        found = self.known(name.text)
        if found is None:
            near = did_you_mean(name.text, self.names())
            hint = near or "`show feeds` lists what there is"
            raise UnknownNameError(f"there is no feed {name.text}", span=name.span, hint=hint)
        return found

    def find_own(self, name: Name) -> Feed:
        """As `find`, for a statement that changes the feed."""
        found = self.find(name)
        if found.owner != self.actor.owner:
            raise StatementError(
                f"{name.text} belongs to the admin; you can read it but not change it",
                span=name.span,
                hint="register a feed of your own",
            )
        return found

    def own(self, name: str) -> Feed | None:
        """The actor's own live feed of a name, if there is one."""
        found = self.known(name)
        return found if found is not None and found.owner == self.actor.owner else None

    def refuse_taken(self, name: Name) -> None:
        """A name that the actor has given already cannot be given again; the operator's names can."""
        existing = self.own(name.text)
        if existing is not None:
            hint = "use `create or replace feed` to change it" if existing.kind is FeedKind.VIRTUAL else None
            raise DuplicateNameError(f"there is a feed {name.text} already", span=name.span, hint=hint)

    def add(self, new: NewFeed) -> None:
        """Add a feed, which is written later; the statements that follow know it."""
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

    def forget(self, name: str) -> None:
        """A name means something else now, or nothing."""
        self._feeds.pop(name, None)

    def forget_all(self) -> None:
        """Many feeds are something else now."""
        self._feeds.clear()

    def names(self) -> list[str]:
        """The names that mean a feed to the actor; many, so only to help after an error."""
        new = {one.name for one in self.pending.feeds.values()}
        return sorted(new.union(feeds.live_names(self.connection, self.actor.owner)))

    def shown(self, ids: Iterable[int]) -> list[str]:
        """Feeds by the names under which the actor knows them, in order."""
        names = names_for(self.connection, self.actor)
        return sorted(names[one] for one in ids if one in names)

    def regroup(self, feed: SourceFeed) -> None:
        """A source feed comes into the groups of feeds that have it, or leaves them: their readers change."""
        self.pending.regrouped |= group_readers(self.connection, feed)

    # --- prefixes and operators ----------------------------------------------------------------------------------

    def prefixes(self) -> dict[str, str]:
        """What names stand for in graph patterns."""
        if self._prefixes is None:
            self._prefixes = all_prefixes(self.connection)
        return self._prefixes

    def forget_prefixes(self) -> None:
        """What prefixes there are has changed."""
        self._prefixes = None

    def operator(self, name: str) -> OperatorDeclaration | None:
        """The live registration of an operator's name."""
        return self._live_operators().get(name)

    def operator_names(self) -> list[str]:
        """The names of all operators."""
        return list(self._live_operators())

    def forget_operators(self) -> None:
        """What operators there are has changed."""
        self._operators = None

    def _live_operators(self) -> dict[str, OperatorDeclaration]:
        if self._operators is None:
            self._operators = operators.live_operators(self.connection)
        return self._operators

    # --- subscriptions -------------------------------------------------------------------------------------------

    def subscription(self, number: int, span: Span) -> Subscription:
        """A live subscription of the actor (to the operator: of anybody) by its number."""
        found = subscriptions.subscription_by_number(self.connection, number)
        if found is None or not self.actor.holds(found):
            raise UnknownNameError(
                f"there is no subscription {number}", span=span, hint="`show subscriptions` lists them"
            )
        return found

    def target_holder(self, target: str) -> int | None:
        """The number of a live subscription with this target."""
        if self._targets is None:
            self._targets = {one.target: one.id for one in self.pending.subscriptions if one.target is not None}
            if self._is_large:
                self._targets |= subscriptions.live_targets(self.connection)
        held = self._targets.get(target)
        if held is None and not self._is_large:
            held = subscriptions.subscription_to_target(self.connection, target)
        return held

    def subscribe(self, new: NewSubscription) -> None:
        """One more subscription, which is written later."""
        self.pending.subscriptions.append(new)
        self.pending.touched.add(new.feed)
        if self._targets is not None and new.target is not None:
            self._targets[new.target] = new.id

    def want_consent(self, wanted: WantedConsent, limit: int) -> bool:
        """Note that a target has to confirm; False if too many targets of the owner wait for that."""
        if self.is_confirmed(wanted) or wanted.key in self._wanted:
            return True
        if self._unanswered is None:
            self._unanswered = pending_count(self.connection, wanted.owner)
        known = consent_of(self.connection, *wanted.key)
        if known is None or known.expires <= now(self.connection):
            if self._unanswered >= limit:
                return False
            self._unanswered += 1
        self._wanted.add(wanted.key)
        return True

    def is_confirmed(self, wanted: WantedConsent) -> bool:
        """Whether messages can be sent to a target at once."""
        if wanted.is_exempt:
            return True
        known = consent_of(self.connection, *wanted.key)
        return known is not None and known.is_confirmed

    def end(self, ended: Iterable[Subscription]) -> list[int]:
        """End subscriptions; gives the numbers of those that somebody made."""
        numbers = []
        for one in ended:
            subscriptions.end_subscription(self.connection, one.id)
            ledger.drop_cursor(self.connection, one.id)
            self.pending.touched.add(one.feed)
            if not one.is_internal:
                numbers.append(one.id)
                if one.owner == self.actor.owner:
                    self.allowance.give_back("subscriptions")
        return numbers
