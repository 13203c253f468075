"""Declarations: a script's statements applied to the catalog, in one transaction, ending with a new plan version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from runnel.catalog import feeds, ledger, subscriptions
from runnel.catalog.connection import now
from runnel.catalog.sequencer import last_sequence
from runnel.engine.root import Root
from runnel.errors import (
    CyclicFeeds,
    DuplicateName,
    InputError,
    InvalidCondition,
    NotFound,
    Span,
    StatementError,
    StillNeeded,
    UnknownName,
)
from runnel.language.binding import bind_query, find_cycle
from runnel.language.nearest import did_you_mean
from runnel.language.printing import print_statement
from runnel.language.statements import (
    CreateFeed,
    Declaration,
    Drop,
    Name,
    Pause,
    RegisterFeed,
    Subscribe,
    Unsubscribe,
)
from runnel.model.feed import Feed, FeedKind
from runnel.model.subscription import Subscription
from runnel.sinks.registry import open_sink
from runnel.sources.address import parse_address

_NO_POLLING = "note: addresses on the web are not polled by this version; publish into the feed, or use a drop folder"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement did or found: a line for a person, data for a program, and lines to show below."""

    message: str
    data: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


class Declarer:
    """Applies declarations in one open transaction and remembers what they touched."""

    def __init__(self, root: Root, connection: Connection) -> None:
        self._root = root
        self._connection = connection
        # Nobody else can accept or declare anything while this transaction is open, so these may be kept.
        self._sequence = last_sequence(connection)
        self._feeds: dict[str, Feed | None] = {}
        self.touched: set[int] = set()
        self.redefined: set[int] = set()
        self.dropped: set[int] = set()

    def apply(self, statement: Declaration) -> Outcome:
        """Apply one declaration; raises a StatementError that knows its place."""
        match statement:
            case RegisterFeed():
                return self._register(statement)
            case CreateFeed():
                return self._create(statement)
            case Subscribe():
                return self._subscribe(statement)
            case Unsubscribe():
                return self._unsubscribe(statement)
            case Drop():
                return self._drop(statement)
            case Pause():
                return self._pause(statement)

    def find(self, name: Name) -> Feed:
        """The live feed of a name; raises UnknownName with a near one."""
        found = self._find(name.text)
        if found is None:
            near = did_you_mean(name.text, feeds.live_names(self._connection))
            hint = near or "`show feeds` lists what there is"
            raise UnknownName(f"there is no feed {name.text}", span=name.span, hint=hint)
        return found

    def _find(self, name: str) -> Feed | None:
        if name not in self._feeds:
            self._feeds[name] = feeds.feed_by_name(self._connection, name)
        return self._feeds[name]

    def _register(self, statement: RegisterFeed) -> Outcome:
        self._refuse_taken(statement.name)
        try:
            if statement.address is not None:
                parse_address(statement.address, self._root.folder)
        except InputError as error:
            raise StatementError(error.message, hint=error.hint, span=statement.name.span) from error
        feed = feeds.add_feed(
            self._connection,
            statement.name.text,
            FeedKind.SOURCE,
            print_statement(statement),
            address=statement.address,
        )
        self._feeds[statement.name.text] = Feed(
            feed, statement.name.text, FeedKind.SOURCE, print_statement(statement), statement.address
        )
        lines = (_NO_POLLING,) if (statement.address or "").startswith(("http://", "https://")) else ()
        return Outcome(f"registered feed {statement.name.text}", {"feed": statement.name.text, "id": feed}, lines)

    def _create(self, statement: CreateFeed) -> Outcome:
        name = statement.name.text
        existing = self._find(name)
        if existing is not None and (not statement.replace or existing.kind is FeedKind.SOURCE):
            self._refuse_taken(statement.name)
        node = bind_query(statement.query, self._resolve, lambda: feeds.live_names(self._connection))
        # Stored without `or replace`: a declaration says what is, not how it came to be.
        text = print_statement(CreateFeed(statement.name, statement.query))
        if existing is None:
            feed = feeds.add_feed(self._connection, name, FeedKind.VIRTUAL, text, node=node)
        else:
            self._refuse_cycle(statement, existing, node)
            feed = existing.id
            feeds.replace_feed(self._connection, existing, text, node)
            self.redefined.add(feed)
            self.touched |= feeds.all_sources(self._connection, [feed])
        revision = 1 if existing is None else existing.revision + 1
        paused = existing is not None and existing.paused
        self._feeds[name] = Feed(feed, name, FeedKind.VIRTUAL, text, revision=revision, paused=paused)
        verb = "created" if existing is None else "replaced"
        return Outcome(f"{verb} feed {name}", {"feed": name, "id": feed})

    def _resolve(self, name: str) -> int | None:
        found = self._find(name)
        return None if found is None else found.id

    def _refuse_taken(self, name: Name) -> None:
        existing = self._find(name.text)
        if existing is not None:
            hint = "use `create or replace feed` to change it" if existing.kind is FeedKind.VIRTUAL else None
            raise DuplicateName(f"there is a feed {name.text} already", span=name.span, hint=hint)

    def _refuse_cycle(self, statement: CreateFeed, feed: Feed, node: Any) -> None:
        self.touched |= feeds.all_sources(self._connection, [feed.id])
        path = find_cycle(feed.id, node, feeds.definitions(self._connection, with_paused=True))
        if path is not None:
            names = feeds.feed_names(self._connection)
            shown = ", which reads ".join(names[one] for one in path)
            raise CyclicFeeds(f"{feed.name} would read itself: it reads {shown}", span=statement.name.span)

    def _subscribe(self, statement: Subscribe) -> Outcome:
        feed = self.find(statement.feed)
        target = self._target(statement)
        since = self._sequence
        if statement.back is not None:
            begin = now(self._connection) - int(statement.back.total_seconds() * 1e6)
            since = min(since, self._root.items.sequence_before(begin))
        number = subscriptions.add_subscription(
            self._connection,
            feed.id,
            statement.kind,
            target,
            since=since,
            every=statement.every,
            lifetime=statement.lifetime,
        )
        if statement.back is not None or statement.every is not None:
            # It gets what the others have had already, or gets it later than they do.
            ledger.set_cursor(self._connection, number, since)
        self.touched.add(feed.id)
        data = {"subscription": number, "feed": feed.name, "kind": statement.kind, "target": target}
        where = f" into {target}" if target else ""
        return Outcome(f"subscription {number} to {feed.name}: {statement.kind}{where}", data)

    def _target(self, statement: Subscribe) -> str | None:
        try:
            sink = open_sink(statement.kind)
            target = sink.validate_target(statement.target, self._root.folder, self._root.settings.out_folders)
        except (InputError, NotFound) as error:
            raise StatementError(error.message, hint=error.hint, span=statement.span) from error
        if target is not None and getattr(sink, "owns_target", False):
            taken = subscriptions.subscription_to_target(self._connection, target)
            if taken is not None:
                raise DuplicateName(
                    f"subscription {taken} writes into {target} already",
                    span=statement.span,
                    hint="choose another file, or end that subscription first",
                )
        return target

    def _unsubscribe(self, statement: Unsubscribe) -> Outcome:
        ended = self._matching(statement)
        for one in ended:
            subscriptions.end_subscription(self._connection, one.id)
            ledger.drop_cursor(self._connection, one.id)
            self.touched.add(one.feed)
        numbers = [one.id for one in ended]
        return Outcome(f"ended {_list('subscription', numbers)}", {"subscriptions": numbers})

    def _matching(self, statement: Unsubscribe) -> list[Subscription]:
        if statement.number is not None:
            return [self._subscription(statement.number, statement.span)]
        if statement.feed is None:
            raise InvalidCondition("unsubscribe from what?", span=statement.span)
        feed = self.find(statement.feed)
        found = [
            one
            for one in subscriptions.live_subscriptions(self._connection, feed.id)
            if statement.kind in (None, one.kind) and statement.target in (None, one.target)
        ]
        if not found:
            raise UnknownName(
                f"there is no such subscription to {feed.name}",
                span=statement.feed.span,
                hint="`show subscriptions` lists them",
            )
        return found

    def _subscription(self, number: int, span: Span) -> Subscription:
        found = subscriptions.subscription_by_number(self._connection, number)
        if found is None:
            raise UnknownName(f"there is no subscription {number}", span=span, hint="`show subscriptions` lists them")
        return found

    def _drop(self, statement: Drop) -> Outcome:
        feed = self.find(statement.name)
        doomed = feeds.all_readers(self._connection, [feed.id])
        held = [one for each in doomed for one in subscriptions.live_subscriptions(self._connection, each)]
        names = feeds.feed_names(self._connection)
        readers = sorted(names[one] for one in doomed - {feed.id})
        if (readers or held) and not statement.cascade:
            needs = [_list("feed", readers)] * bool(readers) + [_list("subscription", [s.id for s in held])] * bool(
                held
            )
            raise StillNeeded(
                f"{feed.name} is still needed by {' and '.join(needs)}",
                span=statement.name.span,
                hint=f"`drop feed {feed.name} cascade` drops them too",
            )
        for one in held:
            subscriptions.end_subscription(self._connection, one.id)
            ledger.drop_cursor(self._connection, one.id)
        # What the doomed feeds read may be needed no more; ask before the edges are gone.
        self.touched |= feeds.all_sources(self._connection, doomed)
        for one_feed in doomed:
            self._feeds.pop(names[one_feed], None)
            feeds.drop_feed(self._connection, one_feed)
        self.dropped |= doomed
        dropped = sorted(names[one] for one in doomed)
        ended = [one.id for one in held]
        also = f" and ended {_list('subscription', ended)}" if ended else ""
        return Outcome(f"dropped {_list('feed', dropped)}{also}", {"feeds": dropped, "subscriptions": ended})

    def _pause(self, statement: Pause) -> Outcome:
        verb = "paused" if statement.paused else "resumed"
        if statement.feed is not None:
            feed = self.find(statement.feed)
            feeds.pause_feed(self._connection, feed, statement.paused)
            self._feeds.pop(feed.name, None)
            if feed.kind is FeedKind.VIRTUAL:
                self.redefined.add(feed.id)
            return Outcome(f"{verb} feed {feed.name}", {"feed": feed.name, "paused": statement.paused})
        found = self._subscription(statement.subscription or 0, statement.span)
        if statement.paused and ledger.cursor(self._connection, found.id) is None:
            shared = ledger.cursor(self._connection, ledger.SHARED) or 0
            ledger.set_cursor(self._connection, found.id, max(shared, found.since))
        subscriptions.pause_subscription(self._connection, found.id, statement.paused)
        return Outcome(f"{verb} subscription {found.id}", {"subscription": found.id, "paused": statement.paused})


def _list(noun: str, things: list[Any]) -> str:
    shown = ", ".join(str(thing) for thing in things[:5])
    more = f" and {len(things) - 5} more" if len(things) > 5 else ""
    return f"{noun}{'s' if len(things) != 1 else ''} {shown}{more}"
