"""Declarations: a script's statements, applied one by one to the catalog as one transaction sees it.

What is new is kept until it can be written together (`DeclarationScope.pending`); whatever changes or looks for
something that is there already has that written first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runnel.algebra.nodes.query import Node, Read, reads
from runnel.catalog.declared import feeds, subscriptions, tags
from runnel.catalog.declared.bulk_insert import NewFeed, NewSubscription, encode_feed
from runnel.catalog.declared.feed_groups import SourceFeed, source_feed
from runnel.catalog.declared.prefixes import all_prefixes
from runnel.engine.declare import confirm_targets, declare_operators, declare_prefixes, subscribe
from runnel.engine.declare.refuse_large import SizeLimits
from runnel.engine.declare.scope import DeclarationScope
from runnel.engine.outcome import Outcome, listed
from runnel.errors import CyclicFeedsError, InputError, StatementError, StillNeededError
from runnel.language.binding.bind_query import bind_query, find_cycle
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax import statements as said
from runnel.language.syntax.iri_prefixes import write_out
from runnel.model.feed import Feed, FeedKind
from runnel.model.operator import OperatorDeclaration
from runnel.model.subscription import INTERNAL
from runnel.sources.registry import source_of


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A `create feed` statement bound to the catalog, and what that rests on.

    A script is applied more than once (see `commit_change`); as long as names, prefixes and operators mean the same,
    its queries need not be bound again, least of all under the write lock.
    """

    feeds: Mapping[str, int | None]
    prefixes: Mapping[str, str] | None
    operators: Mapping[str, OperatorDeclaration | None]
    node: Node
    text: str
    encoded: str


BoundQueries = dict[int, BoundQuery]
"""By the identity of the statement: hashing a large query takes as long as binding it."""


class Declarer:
    """Applies declarations in one open transaction; its scope remembers what they touched."""

    def __init__(self, scope: DeclarationScope, bound: BoundQueries | None = None) -> None:
        self.scope = scope
        self._connection = scope.connection
        self._prefixes: dict[str, str] | None = None
        self._bound: BoundQueries = {} if bound is None else bound
        self._limits = SizeLimits(scope.root.settings, scope.actor)
        self._origins: dict[int, int] | None = None

    def apply(self, statement: said.Declaration) -> Outcome:
        """Apply one declaration; raises a StatementError that knows its place."""
        match statement:
            case said.RegisterFeed():
                return self._register(statement)
            case said.CreateFeed():
                return self._create(statement)
            case said.Subscribe():
                return subscribe.subscribe(self.scope, statement)
            case said.MaterialiseFeed():
                return self._materialise(statement)
        self._limits.count_change()
        self.scope.settle()
        match statement:
            case said.RegisterOperator():
                return declare_operators.register(self.scope, statement)
            case said.DropOperator():
                return declare_operators.drop(self.scope, statement, self._drop_all)
            case said.RegisterPrefix() | said.DropPrefix():
                self._prefixes = None
                return declare_prefixes.change_prefixes(self.scope, statement)
            case said.TagFeed():
                return self._tag(statement)
            case said.Drop():
                return self._drop(statement)
            case said.Pause(_, None):
                return subscribe.pause(self.scope, statement)
            case said.Pause():
                return self._pause(statement)
            case said.Unsubscribe():
                return subscribe.unsubscribe(self.scope, statement)
            case said.Renew():
                return subscribe.renew(self.scope, statement)
            case said.RotateKey():
                return subscribe.rotate(self.scope, statement)
            case said.Replay():
                return subscribe.replay(self.scope, statement)
            case said.SendNow():
                return subscribe.send_now(self.scope, statement)
            case said.Confirm():
                return confirm_targets.confirm(self.scope, statement)

    def _register(self, statement: said.RegisterFeed) -> Outcome:
        self.scope.refuse_taken(statement.name)
        if statement.address is not None:
            self._check_address(statement, statement.address)
        self.scope.allowance.take("queries")
        name, text, owner = statement.name.text, print_statement(statement), self.scope.actor.owner
        feed = self.scope.pending.feed_id()
        self.scope.pending.add_feed(
            NewFeed(
                feed,
                name,
                FeedKind.SOURCE,
                text,
                statement.address,
                owner=owner,
                every=statement.every,
                tags=statement.tags,
                title=statement.title,
                home=statement.home,
                open_items=statement.open_items,
            )
        )
        self.scope.regroup(SourceFeed(feed, owner, frozenset(statement.tags)))
        self.scope.remember(
            Feed(
                feed,
                name,
                FeedKind.SOURCE,
                text,
                statement.address,
                owner=owner,
                every=statement.every,
                title=statement.title,
                home=statement.home,
                open_items=statement.open_items,
            )
        )
        how = ", open for everybody" if statement.open_items is not None else ""
        return Outcome(f"registered feed {name}{how}", {"feed": name, "id": feed})

    def _check_address(self, statement: said.RegisterFeed, text: str) -> None:
        root = self.scope.root
        try:
            source = source_of(text)
            source.check_address(text, root.folder, root.settings)
        except InputError as error:
            raise StatementError(error.message, hint=error.hint, span=statement.place) from error
        if not self.scope.actor.is_admin and not source.is_for_owners:
            raise StatementError(
                "addresses of this kind, such as files and folders, are for the admin only",
                span=statement.place,
                hint="give an address that begins with https://, or leave it out and publish into the feed",
            )
        if statement.every is not None and not source.has_period:
            raise StatementError(
                "feeds at addresses of this kind, such as files and folders, have no period",
                span=statement.place,
                hint="leave `every` out: they are read every few seconds (setting scan_seconds)",
            )

    def _materialise(self, statement: said.MaterialiseFeed) -> Outcome:
        scope = self.scope
        self._origins = None
        scope.refuse_taken(statement.name)
        origin = scope.find(statement.origin)
        scope.refuse_disabled(statement.name.span)
        scope.allowance.take("queries")
        name, text, owner = statement.name.text, print_statement(statement), scope.actor.owner
        sheet = scope.sheets[statement.sheet]
        feed = scope.pending.feed_id()
        scope.pending.add_feed(NewFeed(feed, name, FeedKind.SOURCE, text, owner=owner, origin=origin.id, sheet=sheet))
        number = scope.pending.subscription_id()
        scope.subscribe(NewSubscription(number, origin.id, INTERNAL, str(feed), owner=owner, sheet=sheet))
        scope.remember(Feed(feed, name, FeedKind.SOURCE, text, owner=owner, origin=origin.id, sheet=sheet))
        data = {"feed": name, "id": feed, "origin": origin.name, "sheet": sheet}
        return Outcome(f"registered feed {name}, made from {origin.name}", data)

    def _create(self, statement: said.CreateFeed) -> Outcome:
        name, owner = statement.name.text, self.scope.actor.owner
        self._limits.check(statement.query, statement.name.span)
        existing = self.scope.own(name)
        if existing is not None and (not statement.replace or existing.kind is FeedKind.SOURCE):
            self.scope.refuse_taken(statement.name)
        bound = self.bind(statement)
        node, text = bound.node, bound.text
        if existing is None:
            self.scope.allowance.take("queries")
            feed = self.scope.pending.feed_id()
            self.scope.pending.add_feed(
                NewFeed(
                    feed,
                    name,
                    FeedKind.VIRTUAL,
                    text,
                    node=node,
                    owner=owner,
                    tags=statement.tags,
                    encoded=bound.encoded,
                )
            )
        else:
            self._limits.count_change()
            self.scope.settle()
            self._refuse_cycle(statement, existing, node)
            feed = existing.id
            feeds.replace_feed(self._connection, existing, text, node, bound.encoded)
            self.scope.redefined.add(feed)
            self.scope.touched |= feeds.all_sources(self._connection, [feed])
            tags.set_tags(self._connection, feed, statement.tags)
        revision = 1 if existing is None else existing.revision + 1
        paused = existing is not None and existing.paused
        self.scope.remember(Feed(feed, name, FeedKind.VIRTUAL, text, revision=revision, paused=paused, owner=owner))
        verb = "created" if existing is None else "replaced"
        return Outcome(f"{verb} feed {name}", {"feed": name, "id": feed})

    def bind(self, statement: said.CreateFeed) -> BoundQuery:
        """The query of a statement, bound to what names mean now."""
        known = self._bound.get(id(statement))
        if known is not None and self._is_current(known):
            return known
        names: dict[str, int | None] = {}
        asked: dict[str, OperatorDeclaration | None] = {}
        prefixes: dict[str, str] | None = None

        def resolve(name: str) -> int | None:
            names[name] = self._resolve(name)
            return names[name]

        def operator(name: str) -> OperatorDeclaration | None:
            asked[name] = self.scope.operator(name)
            return asked[name]

        def known_prefixes() -> dict[str, str]:
            nonlocal prefixes
            prefixes = self._known_prefixes()
            return prefixes

        query = write_out(statement.query, known_prefixes)
        actor = self.scope.actor
        node = bind_query(query, resolve, self.scope.names, operator, self.scope.operator_names, actor.owner)
        # Stored without `or replace`: a declaration says what is, not how it came to be.
        text = print_statement(said.CreateFeed(statement.name, query, tags=statement.tags))
        bound = BoundQuery(names, prefixes, asked, node, text, encode_feed(node))
        self._bound[id(statement)] = bound
        return bound

    def _is_current(self, bound: BoundQuery) -> bool:
        return (
            all(self._resolve(name) == feed for name, feed in bound.feeds.items())
            and all(self.scope.operator(name) == one for name, one in bound.operators.items())
            and (bound.prefixes is None or bound.prefixes == self._known_prefixes())
        )

    def _known_prefixes(self) -> dict[str, str]:
        if self._prefixes is None:
            self._prefixes = all_prefixes(self._connection)
        return self._prefixes

    def _resolve(self, name: str) -> int | None:
        found = self.scope.known(name)
        return None if found is None else found.id

    def _refuse_cycle(self, statement: said.CreateFeed, feed: Feed, node: Node) -> None:
        self.scope.touched |= feeds.all_sources(self._connection, [feed.id])
        # A materialised feed reads its origin as a view does, only later.
        if self._origins is None:
            self._origins = feeds.origins(self._connection)
        made_from: dict[int, Node] = {one: Read(origin) for one, origin in self._origins.items()}
        below = feeds.all_sources(self._connection, {*reads(node), *self._origins.values()})
        if feed.id not in below:
            return  # nearly always, and without decoding anybody's query
        definitions = feeds.own_definitions(self._connection, below, with_paused=True)
        path = find_cycle(feed.id, node, definitions | made_from)
        if path is not None:
            names = feeds.feed_names(self._connection)
            shown = ", which reads ".join(names[one] for one in path)
            raise CyclicFeedsError(f"{feed.name} would read itself: it reads {shown}", span=statement.name.span)

    def _tag(self, statement: said.TagFeed) -> Outcome:
        scope = self.scope
        feed = scope.find_own(statement.name)
        before = source_feed(self._connection, feed.id)
        if before is None:
            raise StatementError(
                f"{feed.name} is not a registered feed",
                span=statement.name.span,
                hint="change the tags of a virtual feed with `create or replace feed Name tagged …`",
            )
        (declared,) = parse(feed.statement)
        if isinstance(declared.statement, said.RegisterFeed):
            text = print_statement(replace(declared.statement, tags=statement.tags))
            feeds.set_statement(self._connection, feed, text)
        tags.set_tags(self._connection, feed.id, statement.tags)
        scope.forget(feed.name)
        scope.regroup(before)
        scope.regroup(SourceFeed(feed.id, feed.owner, frozenset(statement.tags)))
        tagged = f"tagged {', '.join(statement.tags)}" if statement.tags else "without tags"
        return Outcome(f"feed {feed.name} is {tagged}", {"feed": feed.name, "tags": list(statement.tags)})

    def _drop(self, statement: said.Drop) -> Outcome:
        scope = self.scope
        feed = scope.find_own(statement.name)
        doomed = feeds.all_dependents(self._connection, [feed.id])
        held = [one for each in doomed for one in subscriptions.live_subscriptions(self._connection, each)]
        people_hold = sorted(one.id for one in held if not one.is_internal)
        readers = scope.shown(doomed - {feed.id})
        if (readers or people_hold) and not statement.cascade:
            needs = [
                listed(noun, things) for noun, things in (("feed", readers), ("subscription", people_hold)) if things
            ]
            raise StillNeededError(
                f"{feed.name} is still needed by {' and '.join(needs)}",
                span=statement.name.span,
                hint=f"`drop feed {feed.name} cascade` drops them too",
            )
        dropped, ended = self._drop_all(doomed)
        also = f" and ended {listed('subscription', ended)}" if ended else ""
        return Outcome(f"dropped {listed('feed', dropped)}{also}", {"feeds": dropped, "subscriptions": ended})

    def _drop_all(self, doomed: set[int]) -> tuple[list[str], list[int]]:
        """Drop feeds on which no others depend, and end their subscriptions; gives the names and the numbers."""
        scope = self.scope
        self._origins = None
        held = [one for each in doomed for one in subscriptions.live_subscriptions(self._connection, each)]
        # What the doomed feeds read may be needed no more; ask before the edges are gone.
        scope.touched |= feeds.all_sources(self._connection, doomed)
        serving = subscriptions.internal_subscriptions(self._connection, doomed)
        ended = sorted(scope.end({one.id: one for one in (*held, *serving)}.values()))
        dropped = scope.shown(doomed)
        owners = feeds.feed_owners(self._connection, doomed)
        names = feeds.feed_names(self._connection)
        for one in doomed:
            scope.forget(names[one])
            source = source_feed(self._connection, one)
            if source is not None:
                scope.regroup(source)
            feeds.drop_feed(self._connection, one)
            if owners[one] == scope.actor.owner:
                scope.allowance.give_back("queries")
        tags.forget_tags(self._connection, doomed)
        scope.dropped |= doomed
        return dropped, ended

    def _pause(self, statement: said.Pause) -> Outcome:
        if statement.feed is None:
            raise StatementError("pause what?", span=statement.span)
        feed = self.scope.find_own(statement.feed)
        feeds.pause_feed(self._connection, feed, statement.paused)
        self.scope.forget(feed.name)
        if feed.kind is FeedKind.VIRTUAL:
            self.scope.redefined.add(feed.id)
        for serving in subscriptions.internal_subscriptions(self._connection, [feed.id]):
            subscriptions.keep_place(self._connection, serving)
            subscriptions.pause_subscription(self._connection, serving.id, statement.paused)
        verb = "paused" if statement.paused else "resumed"
        return Outcome(f"{verb} feed {feed.name}", {"feed": feed.name, "paused": statement.paused})
