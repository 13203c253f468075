"""Apply the declarations of a script in one transaction, and commit them together with a new plan version.

The plan is compiled before the transaction writes anything, while other writers continue: see `commit_change`. The
statements are applied in order. New feeds and subscriptions stay pending in the scope until they can be written
together. A statement that changes existing rows causes the pending rows to be written first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node, Read, reads
from runnel.catalog.declared import feeds, subscriptions, tags
from runnel.catalog.declared.bulk_insert import NewFeed, NewSubscription, encode_feed
from runnel.catalog.declared.feed_groups import SourceFeed, source_feed
from runnel.delivery.settle_attempts import reason_of
from runnel.engine.actors import Actor, check_actor
from runnel.engine.answers import Answer, Dropped, FeedDone, listed
from runnel.engine.declare import (
    confirm_targets,
    declare_operators,
    declare_prefixes,
    declare_tables,
    subscribe,
)
from runnel.engine.declare.bind_statement import BoundQuery, bind
from runnel.engine.declare.commit_change import commit_change
from runnel.engine.declare.declare_operators import Registrations, load_registrations
from runnel.engine.declare.keep_stylesheets import keep_stylesheets
from runnel.engine.declare.locate_errors import locate_errors
from runnel.engine.declare.refuse_large import SizeLimits
from runnel.engine.declare.refuse_long_fills import refuse_long_fills
from runnel.engine.declare.scope import DeclarationScope, NeedsLockError, Pending
from runnel.engine.workspace import Workspace
from runnel.errors import CyclicFeedsError, InputError, RunnelError, StatementError, StillNeededError
from runnel.gc_paused import gc_paused
from runnel.language.binding.bind_query import find_cycle
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax import statements as syntax
from runnel.model.feed import Feed, FeedKind, is_hidden
from runnel.model.subscription import INTERNAL, Subscription
from runnel.sources.registry import source_of

LARGE = 200
"""Number of declarations from which Python's cyclic garbage collector is paused."""

_BULK_DECLARATIONS = 20
"""Number of declarations from which all names are looked up in one statement."""

Numbered = tuple[int, syntax.Parsed]
"""The index of a statement in the script, and the parsed statement."""


BoundQueries = dict[int, BoundQuery]
"""Bound queries by the `id()` of the statement object, because hashing a large query takes as long as binding it."""


def declare(workspace: Workspace, actor: Actor, declarations: Sequence[Numbered], text: str) -> dict[int, Answer]:
    """Apply the declarations of a script, and return their answers by the index of the statement."""
    statements = [parsed.statement for _, parsed in declarations]
    with locate_errors(text, declarations[0][1].span):
        registrations = load_registrations(workspace, actor, statements)
        sheets = keep_stylesheets(workspace, statements)
    script = _Script(workspace, actor, declarations, text, sheets, registrations)
    with gc_paused() if len(declarations) >= LARGE else nullcontext():
        return commit_change(workspace, script.apply, owner=actor.owner, before_commit=script.before_commit)


class _Script:
    """The declarations of one script while they are being committed."""

    def __init__(
        self,
        workspace: Workspace,
        actor: Actor,
        declarations: Sequence[Numbered],
        text: str,
        sheets: dict[str, str],
        registrations: Registrations,
    ) -> None:
        self._workspace = workspace
        self._actor = actor
        self._declarations = declarations
        self._text = text
        self._sheets = sheets
        self._registrations = registrations
        self._bound: BoundQueries = {}

    def apply(
        self, connection: Connection, *, is_read_only: bool, numbers: Mapping[str, int]
    ) -> tuple[dict[int, Answer], Pending]:
        """Apply the declarations in order."""
        scope = DeclarationScope(
            self._workspace,
            connection,
            self._actor,
            self._sheets,
            registrations=self._registrations,
            names=set(_names(self._declarations)) if len(self._declarations) >= _BULK_DECLARATIONS else (),
            is_read_only=is_read_only,
            numbers=numbers,
        )
        declarer = Declarer(scope, self._bound)
        answers: dict[int, Answer] = {}
        for index, parsed in self._declarations:
            with locate_errors(self._text, parsed.span):
                try:
                    answers[index] = declarer.apply(parsed.statement)  # type: ignore[arg-type]
                except NeedsLockError:
                    self._bind_rest(declarer, index)
                    raise
        return answers, scope.pending

    def before_commit(self, connection: Connection) -> None:
        """Check that the actor may still declare. Store stylesheets again if garbage collection deleted them."""
        check_actor(connection, self._actor)
        if not all(self._workspace.storage.local(path).exists() for path in self._sheets.values()):
            self._sheets |= keep_stylesheets(self._workspace, [parsed.statement for _, parsed in self._declarations])

    def _bind_rest(self, declarer: Declarer, after: int) -> None:
        """Bind the queries after an index while no lock is held, as far as the feeds that they read exist already."""
        for index, parsed in self._declarations:
            if index > after and isinstance(parsed.statement, syntax.CreateFeed):
                try:
                    declarer.bind(parsed.statement)
                except RunnelError:
                    continue  # it is bound under the lock, after the statements before it have been applied


def _names(declarations: Sequence[Numbered]) -> Iterator[str]:
    """Yield the names of feeds that a script declares or reads."""
    for _, parsed in declarations:
        match parsed.statement:
            case syntax.CreateFeed(name, query):
                yield name.text
                yield from (
                    term.feed.text for term in syntax.each_term(query.source) if isinstance(term, syntax.FeedTerm)
                )
            case syntax.RegisterFeed(name) | syntax.Subscribe(name):
                yield name.text


class Declarer:
    """Applies declarations in one open transaction. Its scope collects the pending change."""

    def __init__(self, scope: DeclarationScope, bound: BoundQueries | None = None) -> None:
        self.scope = scope
        self._connection = scope.connection
        self._bound: BoundQueries = {} if bound is None else bound
        self._limits = SizeLimits(scope.workspace.settings, scope.actor)
        self._origins: dict[int, int] | None = None

    def apply(self, statement: syntax.Declaration) -> Answer:
        """Apply one declaration. Raise StatementError, usually with a span, if it is refused."""
        match statement:
            case syntax.RegisterFeed():
                return self._register(statement)
            case syntax.CreateFeed():
                return self._create(statement)
            case syntax.Subscribe():
                return subscribe.subscribe(self.scope, statement)
            case syntax.MaterializeFeed():
                return self._materialize(statement)
        self._limits.count_change()
        self.scope.write_pending()
        match statement:
            case syntax.RegisterOperator():
                return declare_operators.register(self.scope, statement)
            case syntax.DropOperator():
                return declare_operators.drop(self.scope, statement, self._drop_all)
            case syntax.RegisterPrefix() | syntax.DropPrefix():
                self.scope.forget_prefixes()
                return declare_prefixes.change_prefixes(self.scope, statement)
            case syntax.RegisterTable():
                return declare_tables.register(self.scope, statement)
            case syntax.DropTable():
                return declare_tables.drop(self.scope, statement, self._drop_all)
            case syntax.TagFeed():
                return self._tag(statement)
            case syntax.Drop():
                return self._drop(statement)
            case syntax.Pause(_, None):
                return subscribe.pause(self.scope, statement)
            case syntax.Pause():
                return self._pause(statement)
            case syntax.Unsubscribe():
                return subscribe.unsubscribe(self.scope, statement)
            case syntax.Renew():
                return subscribe.renew(self.scope, statement)
            case syntax.RotateKey():
                return subscribe.rotate(self.scope, statement)
            case syntax.Replay():
                return subscribe.replay(self.scope, statement)
            case syntax.SendNow():
                return subscribe.send_now(self.scope, statement)
            case syntax.Confirm():
                return confirm_targets.confirm(self.scope, statement)

    def _register(self, statement: syntax.RegisterFeed) -> FeedDone:
        self.scope.refuse_duplicate(statement.name)
        if statement.address is not None:
            self._check_address(statement, statement.address)
        self.scope.allowance.take("queries")
        name, owner = statement.name.text, self.scope.actor.owner
        feed = self.scope.pending.feed_id()
        self.scope.add(
            NewFeed(
                feed,
                name,
                FeedKind.SOURCE,
                print_statement(statement),
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
        access = ", open to everyone" if statement.open_items is not None else ""
        return FeedDone(f"registered feed {name}{access}", name, feed)

    def _check_address(self, statement: syntax.RegisterFeed, text: str) -> None:
        workspace = self.scope.workspace
        try:
            source = source_of(text)
        except InputError as error:
            raise StatementError(error.message, hint=error.hint, span=statement.address_span) from error
        try:
            source.check_address(text, workspace.folder, workspace.settings)
        except InputError as error:
            raise StatementError(error.message, hint=error.hint, span=statement.address_span) from error
        except Exception as error:  # a plug-in may raise anything
            raise StatementError(
                f"the source plug-in failed to check this address: {reason_of(error)}",
                hint=f"{type(source).__qualname__}.check_address must return or raise InputError",
                span=statement.address_span,
            ) from error
        if not self.scope.actor.is_admin and not source.is_for_owners:
            raise StatementError(
                "only the admin can register this kind of address (such as the path of a file or folder)",
                span=statement.address_span,
                hint="give an address that begins with https://, or leave it out and publish into the feed",
            )
        if statement.every is not None and not source.has_period:
            raise StatementError(
                "a feed at this kind of address (such as the path of a file or folder) cannot have `every`",
                span=statement.address_span,
                hint="leave out `every`: such feeds are scanned at the interval of the setting scan_seconds",
            )

    def _materialize(self, statement: syntax.MaterializeFeed) -> FeedDone:
        scope = self.scope
        self._origins = None
        scope.refuse_duplicate(statement.name)
        origin = scope.find_stream(statement.origin)
        scope.refuse_disabled(statement.name.span)
        scope.allowance.take("queries")
        name, text, owner = statement.name.text, print_statement(statement), scope.actor.owner
        sheet = scope.sheets[statement.sheet]
        feed = scope.pending.feed_id()
        scope.add(NewFeed(feed, name, FeedKind.SOURCE, text, owner=owner, origin=origin.id, sheet=sheet))
        number = scope.pending.subscription_id()
        scope.subscribe(NewSubscription(number, origin.id, INTERNAL, str(feed), owner=owner, sheet=sheet))
        return FeedDone(f"registered feed {name}, materialized from {origin.name}", name, feed, origin.name, sheet)

    def _create(self, statement: syntax.CreateFeed) -> FeedDone:
        name = statement.name.text
        self._limits.check(statement.query, statement.name.span)
        existing = self.scope.own_or_none(name)
        if existing is not None and (not statement.replace or existing.kind is not FeedKind.VIRTUAL):
            self.scope.refuse_duplicate(statement.name)
        bound = self.bind(statement)
        if statement.query.joins:
            node = self.scope.hide_gates(bound.node)
            refuse_long_fills(self.scope, node, statement.query.joins)
            bound = replace(bound, node=node, encoded=encode_feed(node))
        if existing is not None:
            self._replace(existing, statement, bound)
            return FeedDone(f"replaced feed {name}", name, existing.id)
        self.scope.allowance.take("queries")
        feed = self.scope.pending.feed_id()
        self.scope.add(
            NewFeed(
                feed,
                name,
                FeedKind.VIRTUAL,
                bound.text,
                node=bound.node,
                owner=self.scope.actor.owner,
                tags=statement.tags,
                encoded=bound.encoded,
            )
        )
        return FeedDone(f"created feed {name}", name, feed)

    def _replace(self, feed: Feed, statement: syntax.CreateFeed, bound: BoundQuery) -> None:
        """Replace the query of one of the actor's virtual feeds."""
        self._limits.count_change()
        self.scope.write_pending()
        self._refuse_cycle(statement, feed, bound.node)
        feeds.replace_feed(self._connection, feed, bound.text, bound.node, bound.encoded)
        tags.set_tags(self._connection, feed.id, statement.tags)
        self.scope.forget_feed(feed.name)
        self.scope.pending.redefined.add(feed.id)
        self.scope.pending.touched |= feeds.all_sources(self._connection, [feed.id])
        self.scope.drop_unread()

    def bind(self, statement: syntax.CreateFeed) -> BoundQuery:
        """Return the query of a statement, bound to the current values of its names."""
        bound = self._bound.get(id(statement))
        if bound is None or not bound.is_current(self.scope):
            bound = self._bound[id(statement)] = bind(statement, self.scope, self.scope.actor.owner)
        return bound

    def _refuse_cycle(self, statement: syntax.CreateFeed, feed: Feed, node: Node) -> None:
        self.scope.pending.touched |= feeds.all_sources(self._connection, [feed.id])
        # A materialized feed reads its origin like a view does, only later.
        if self._origins is None:
            self._origins = feeds.origins(self._connection)
        materialized: dict[int, Node] = {made: Read(origin) for made, origin in self._origins.items()}
        sources = feeds.all_sources(self._connection, {*reads(node), *self._origins.values()})
        if feed.id not in sources:
            return  # the usual case, which needs no decoding of queries
        definitions = feeds.own_definitions(self._connection, sources, with_paused=True)
        path = find_cycle(feed.id, node, definitions | materialized)
        if path is not None:
            names = feeds.feed_names(self._connection)
            cycle = ", which reads ".join(names[step] for step in path if not is_hidden(names[step]))
            raise CyclicFeedsError(f"{feed.name} would read itself: it reads {cycle}", span=statement.name.span)

    def _tag(self, statement: syntax.TagFeed) -> FeedDone:
        scope = self.scope
        feed = scope.find_own_feed(statement.name)
        before = source_feed(self._connection, feed.id)
        if before is None:
            raise StatementError(
                f"{feed.name} is not a registered feed",
                span=statement.name.span,
                hint="change the tags of a virtual feed with `create or replace feed Name tagged …`",
            )
        (declared,) = parse(feed.statement)
        if isinstance(declared.statement, syntax.RegisterFeed):
            text = print_statement(replace(declared.statement, tags=statement.tags))
            feeds.set_statement(self._connection, feed, text)
        tags.set_tags(self._connection, feed.id, statement.tags)
        scope.forget_feed(feed.name)
        scope.regroup(before)
        scope.regroup(SourceFeed(feed.id, feed.owner, frozenset(statement.tags)))
        tagged = f"tagged {', '.join(statement.tags)}" if statement.tags else "without tags"
        return FeedDone(f"feed {feed.name} is {tagged}", feed.name, tags=list(statement.tags))

    def _drop(self, statement: syntax.Drop) -> Dropped:
        scope = self.scope
        feed = scope.find_own_feed(statement.name)
        doomed = feeds.all_dependents(self._connection, [feed.id])
        subscribed = self._subscriptions_to(doomed)
        numbers = sorted(subscription.id for subscription in subscribed if not subscription.is_internal)
        readers = scope.visible_names(doomed - {feed.id})
        if (readers or numbers) and not statement.cascade:
            dependents = (("feed", readers), ("subscription", numbers))
            users = [listed(noun, things) for noun, things in dependents if things]
            raise StillNeededError(
                f"{feed.name} is still needed by {' and '.join(users)}",
                span=statement.name.span,
                hint=f"`drop feed {feed.name} cascade` drops them too",
            )
        dropped, ended = self._drop_all(doomed)
        also = f" and ended {listed('subscription', ended)}" if ended else ""
        return Dropped(f"dropped {listed('feed', dropped)}{also}", ended, dropped)

    def _drop_all(self, doomed: set[int]) -> tuple[list[str], list[int]]:
        """Drop feeds with no other dependents, and end their subscriptions. Return the names and the numbers."""
        scope = self.scope
        self._origins = None
        subscribed = self._subscriptions_to(doomed)
        # The sources of the dropped feeds may no longer be needed. Read them before the feeds are dropped.
        scope.pending.touched |= feeds.all_sources(self._connection, doomed)
        internal = subscriptions.internal_subscriptions(self._connection, doomed)
        by_number = {subscription.id: subscription for subscription in (*subscribed, *internal)}
        ended = sorted(scope.end(by_number.values()))
        dropped = scope.visible_names(doomed)
        owners = feeds.feed_owners(self._connection, doomed)
        names = feeds.feed_names(self._connection)
        for feed in doomed:
            scope.forget_feed(names[feed])
            source = source_feed(self._connection, feed)
            if source is not None:
                scope.regroup(source)
            feeds.drop_feed(self._connection, feed)
            if owners[feed] == scope.actor.owner:
                scope.allowance.give_back("queries")
        tags.forget_tags(self._connection, doomed)
        scope.pending.dropped |= doomed
        scope.drop_unread()
        return dropped, ended

    def _subscriptions_to(self, ids: set[int]) -> list[Subscription]:
        return [
            subscription for feed in ids for subscription in subscriptions.live_subscriptions(self._connection, feed)
        ]

    def _pause(self, statement: syntax.Pause) -> FeedDone:
        if statement.feed is None:
            raise StatementError("expected `feed NAME` or `subscription N`", span=statement.span)
        feed = self.scope.find_own_feed(statement.feed)
        feeds.pause_feed(self._connection, feed, statement.paused)
        self.scope.forget_feed(feed.name)
        if feed.kind is FeedKind.VIRTUAL:
            self.scope.pending.redefined.add(feed.id)
        for internal in subscriptions.internal_subscriptions(self._connection, [feed.id]):
            subscriptions.give_own_cursor(self._connection, internal)
            subscriptions.pause_subscription(self._connection, internal.id, statement.paused)
        verb = "paused" if statement.paused else "resumed"
        return FeedDone(f"{verb} feed {feed.name}", feed.name, paused=statement.paused)
