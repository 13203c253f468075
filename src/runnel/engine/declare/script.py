"""Scripts of declarations: one transaction each, all or nothing, ending with a new plan version.

A script is compiled before its transaction writes anything, while others go on writing: see `commit_change`. Its
statements are applied one by one to the catalog as one transaction sees it. New things are kept in the scope until
they can be written together; a statement that changes or looks for something that exists has them written first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node, Read, reads
from runnel.catalog.declared import feeds, subscriptions, tags
from runnel.catalog.declared.bulk_insert import NewFeed, NewSubscription
from runnel.catalog.declared.feed_groups import SourceFeed, source_feed
from runnel.delivery.settle_attempts import reason_of
from runnel.engine.actors import Actor, check_actor
from runnel.engine.answers import Answer, Dropped, FeedDone, listed
from runnel.engine.declare import confirm_targets, declare_operators, declare_prefixes, subscribe
from runnel.engine.declare.bind_statement import BoundQuery, bind
from runnel.engine.declare.commit_change import commit_change
from runnel.engine.declare.declare_operators import Registrations, load_registrations
from runnel.engine.declare.keep_stylesheets import keep_stylesheets
from runnel.engine.declare.locate_errors import locate_errors
from runnel.engine.declare.refuse_large import SizeLimits
from runnel.engine.declare.scope import DeclarationScope, NeedsLockError, Pending
from runnel.engine.workspace import Workspace
from runnel.errors import CyclicFeedsError, InputError, RunnelError, StatementError, StillNeededError
from runnel.language.binding.bind_query import find_cycle
from runnel.language.gc_paused import gc_paused
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax import statements as said
from runnel.model.feed import Feed, FeedKind
from runnel.model.subscription import INTERNAL
from runnel.sources.registry import source_of

LARGE = 200
"""Declarations from which on Python's garbage collector is paused."""

_MANY = 20
"""Declarations from which on all names are looked up at once."""

Numbered = tuple[int, said.Parsed]
"""A statement, and its place in the script."""


BoundQueries = dict[int, BoundQuery]
"""By the identity of the statement: hashing a large query takes as long as binding it."""


def declare(workspace: Workspace, actor: Actor, declarations: Sequence[Numbered], text: str) -> dict[int, Answer]:
    """Apply the declarations of a script; return their answers by the statements' places in the script."""
    statements = [one.statement for _, one in declarations]
    with locate_errors(text, declarations[0][1].span):
        registrations = load_registrations(workspace, actor, statements)
        sheets = keep_stylesheets(workspace, statements)
    script = _Script(workspace, actor, declarations, text, sheets, registrations)
    with gc_paused() if len(declarations) >= LARGE else nullcontext():
        return commit_change(workspace, script.apply, owner=actor.owner, before_commit=script.before_commit)


class _Script:
    """The declarations of one script, on their way into the catalog."""

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
        self, connection: Connection, *, ahead: bool, numbers: Mapping[str, int]
    ) -> tuple[dict[int, Answer], Pending]:
        """Apply the declarations one by one."""
        scope = DeclarationScope(
            self._workspace,
            connection,
            self._actor,
            self._sheets,
            registrations=self._registrations,
            names=set(_names(self._declarations)) if len(self._declarations) >= _MANY else (),
            ahead=ahead,
            numbers=numbers,
        )
        declarer = Declarer(scope, self._bound)
        answers: dict[int, Answer] = {}
        for number, one in self._declarations:
            with locate_errors(self._text, one.span):
                try:
                    answers[number] = declarer.apply(one.statement)  # type: ignore[arg-type]
                except NeedsLockError:
                    self._bind_rest(declarer, number)
                    raise
        return answers, scope.pending

    def before_commit(self, connection: Connection) -> None:
        """Check that the actor may still declare, and keep the stylesheets again that were tidied away meanwhile."""
        check_actor(connection, self._actor)
        if not all(self._workspace.storage.local(path).exists() for path in self._sheets.values()):
            self._sheets |= keep_stylesheets(self._workspace, [one.statement for _, one in self._declarations])

    def _bind_rest(self, declarer: Declarer, after: int) -> None:
        """Bind queries while no lock is held, as far as what they read is known already."""
        for number, one in self._declarations:
            if number > after and isinstance(one.statement, said.CreateFeed):
                try:
                    declarer.bind(one.statement)
                except RunnelError:
                    continue  # it is bound again under the lock, where the statements before it have been applied


def _names(declarations: Sequence[Numbered]) -> Iterator[str]:
    """The names of feeds that a script gives or speaks of."""
    for _, one in declarations:
        match one.statement:
            case said.CreateFeed(name, query):
                yield name.text
                yield from (
                    term.feed.text for term in said.each_term(query.source) if isinstance(term, said.FeedTerm)
                )
            case said.RegisterFeed(name) | said.Subscribe(name):
                yield name.text


class Declarer:
    """Applies declarations in one open transaction; its scope remembers what they touched."""

    def __init__(self, scope: DeclarationScope, bound: BoundQueries | None = None) -> None:
        self.scope = scope
        self._connection = scope.connection
        self._bound: BoundQueries = {} if bound is None else bound
        self._limits = SizeLimits(scope.workspace.settings, scope.actor)
        self._origins: dict[int, int] | None = None

    def apply(self, statement: said.Declaration) -> Answer:
        """Apply one declaration; raises a StatementError that knows its place."""
        match statement:
            case said.RegisterFeed():
                return self._register(statement)
            case said.CreateFeed():
                return self._create(statement)
            case said.Subscribe():
                return subscribe.subscribe(self.scope, statement)
            case said.MaterializeFeed():
                return self._materialise(statement)
        self._limits.count_change()
        self.scope.settle()
        match statement:
            case said.RegisterOperator():
                return declare_operators.register(self.scope, statement)
            case said.DropOperator():
                return declare_operators.drop(self.scope, statement, self._drop_all)
            case said.RegisterPrefix() | said.DropPrefix():
                self.scope.forget_prefixes()
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

    def _register(self, statement: said.RegisterFeed) -> FeedDone:
        self.scope.refuse_taken(statement.name)
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
        how = ", open for everybody" if statement.open_items is not None else ""
        return FeedDone(f"registered feed {name}{how}", name, feed)

    def _check_address(self, statement: said.RegisterFeed, text: str) -> None:
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
                f"the source of this address could not check it: {reason_of(error)}",
                hint=f"{type(source).__qualname__}.check_address must return or raise InputError",
                span=statement.address_span,
            ) from error
        if not self.scope.actor.is_admin and not source.is_for_owners:
            raise StatementError(
                "addresses of this kind, such as files and folders, are for the admin only",
                span=statement.address_span,
                hint="give an address that begins with https://, or leave it out and publish into the feed",
            )
        if statement.every is not None and not source.has_period:
            raise StatementError(
                "feeds at addresses of this kind, such as files and folders, have no period",
                span=statement.address_span,
                hint="leave `every` out: they are read every few seconds (setting scan_seconds)",
            )

    def _materialise(self, statement: said.MaterializeFeed) -> FeedDone:
        scope = self.scope
        self._origins = None
        scope.refuse_taken(statement.name)
        origin = scope.find(statement.origin)
        scope.refuse_disabled(statement.name.span)
        scope.allowance.take("queries")
        name, text, owner = statement.name.text, print_statement(statement), scope.actor.owner
        sheet = scope.sheets[statement.sheet]
        feed = scope.pending.feed_id()
        scope.add(NewFeed(feed, name, FeedKind.SOURCE, text, owner=owner, origin=origin.id, sheet=sheet))
        number = scope.pending.subscription_id()
        scope.subscribe(NewSubscription(number, origin.id, INTERNAL, str(feed), owner=owner, sheet=sheet))
        return FeedDone(f"registered feed {name}, made from {origin.name}", name, feed, origin.name, sheet)

    def _create(self, statement: said.CreateFeed) -> FeedDone:
        name = statement.name.text
        self._limits.check(statement.query, statement.name.span)
        existing = self.scope.own(name)
        if existing is not None and (not statement.replace or existing.kind is FeedKind.SOURCE):
            self.scope.refuse_taken(statement.name)
        bound = self.bind(statement)
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

    def _replace(self, feed: Feed, statement: said.CreateFeed, bound: BoundQuery) -> None:
        """Give an own virtual feed another query."""
        self._limits.count_change()
        self.scope.settle()
        self._refuse_cycle(statement, feed, bound.node)
        feeds.replace_feed(self._connection, feed, bound.text, bound.node, bound.encoded)
        tags.set_tags(self._connection, feed.id, statement.tags)
        self.scope.forget(feed.name)
        self.scope.pending.redefined.add(feed.id)
        self.scope.pending.touched |= feeds.all_sources(self._connection, [feed.id])

    def bind(self, statement: said.CreateFeed) -> BoundQuery:
        """The query of a statement, bound to what names mean now."""
        bound = self._bound.get(id(statement))
        if bound is None or not bound.is_current(self.scope):
            bound = self._bound[id(statement)] = bind(statement, self.scope, self.scope.actor.owner)
        return bound

    def _refuse_cycle(self, statement: said.CreateFeed, feed: Feed, node: Node) -> None:
        self.scope.pending.touched |= feeds.all_sources(self._connection, [feed.id])
        # A materialized feed reads its origin as a view does, only later.
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

    def _tag(self, statement: said.TagFeed) -> FeedDone:
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
        return FeedDone(f"feed {feed.name} is {tagged}", feed.name, tags=list(statement.tags))

    def _drop(self, statement: said.Drop) -> Dropped:
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
        return Dropped(f"dropped {listed('feed', dropped)}{also}", ended, dropped)

    def _drop_all(self, doomed: set[int]) -> tuple[list[str], list[int]]:
        """Drop feeds on which no others depend, and end their subscriptions; gives the names and the numbers."""
        scope = self.scope
        self._origins = None
        held = [one for each in doomed for one in subscriptions.live_subscriptions(self._connection, each)]
        # What the doomed feeds read may be needed no more; ask before the edges are gone.
        scope.pending.touched |= feeds.all_sources(self._connection, doomed)
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
        scope.pending.dropped |= doomed
        return dropped, ended

    def _pause(self, statement: said.Pause) -> FeedDone:
        if statement.feed is None:
            raise StatementError("expected `feed NAME` or `subscription N`", span=statement.span)
        feed = self.scope.find_own(statement.feed)
        feeds.pause_feed(self._connection, feed, statement.paused)
        self.scope.forget(feed.name)
        if feed.kind is FeedKind.VIRTUAL:
            self.scope.pending.redefined.add(feed.id)
        for serving in subscriptions.internal_subscriptions(self._connection, [feed.id]):
            subscriptions.keep_place(self._connection, serving)
            subscriptions.pause_subscription(self._connection, serving.id, statement.paused)
        verb = "paused" if statement.paused else "resumed"
        return FeedDone(f"{verb} feed {feed.name}", feed.name, paused=statement.paused)
