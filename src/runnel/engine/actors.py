"""Actors: the admin, or an owner with a token, and which parts of a feed an actor may see.

Every owner may read the admin's feeds. All other feeds are private: for everyone except their owner and the admin,
they do not exist. A name denotes the actor's own feed first, then the admin's. Of a feed of the admin, an owner sees
the name, the query or the host of its source, and the matches that the owner's own subscriptions cause. Paths and
query strings of URLs, paths of files, and everything that depends on the subscriptions of others are removed here, so
that no result can contain them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from sqlalchemy import Connection

from runnel.algebra.nodes.render import render_name
from runnel.catalog.access import owners, tokens
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.declared.tags import tags_of
from runnel.engine.workspace import Workspace
from runnel.errors import NotAllowedError, NotFoundError
from runnel.language.nearest import did_you_mean
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import Name, RegisterFeed
from runnel.model.feed import ADMIN, Feed, FeedKind, is_hidden
from runnel.model.item import Item
from runnel.model.subscription import Subscription
from runnel.sources.feed_address import is_web


@dataclass(frozen=True, slots=True)
class Actor:
    """The user of an engine: an owner's id and name, and the token that was used, if any."""

    owner: int
    name: str
    token: int | None = None

    @property
    def is_admin(self) -> bool:
        """Whether this is the admin, who sees and may change everything."""
        return self.owner == ADMIN

    @property
    def is_local_admin(self) -> bool:
        """Whether this is the admin, with access to the files of the workspace rather than a token."""
        return self.is_admin and self.token is None

    def sees_all_of(self, feed: Feed) -> bool:
        """Return whether this actor may see the addresses and polls of a feed."""
        return self.is_admin or feed.owner == self.owner

    def holds(self, subscription: Subscription) -> bool:
        """Return whether this actor may see and change a subscription."""
        return self.is_admin or subscription.owner == self.owner


ADMIN_ACTOR = Actor(ADMIN, owners.ADMIN_NAME)


def authenticate(workspace: Workspace, token: str) -> Actor:
    """Return an actor for the owner of a token.

    Raise NotAllowedError if the token is wrong or revoked, or if its owner is disabled.
    """
    with workspace.catalog.read() as connection:
        verified = tokens.verify_token(connection, token)
        owner = owners.owner_by_id(connection, verified.owner)
    if verified.fresh:
        with workspace.catalog.write() as connection:
            tokens.note_use(connection, verified.token)
    return Actor(owner.id, owner.name, verified.token)


def check_actor(connection: Connection, actor: Actor) -> None:
    """Raise NotAllowedError if the actor's token is no longer valid.

    An engine may be open for weeks, so this is checked at every statement, request and publication.
    """
    if actor.token is not None:
        tokens.check_token(connection, actor.token)


def actor_named(workspace: Workspace, name: str) -> Actor:
    """Return an actor for the owner with this name, even if disabled, so that the admin can act for the owner.

    Raise NotFoundError if there is no such owner.
    """
    with workspace.catalog.read() as connection:
        owner = owners.owner_by_name(connection, name)
    return Actor(owner.id, owner.name)


def feed_named(connection: Connection, name: str, actor: Actor) -> Feed:
    """Return the live feed that a name denotes for an actor, as the actor may see it, or raise NotFoundError."""
    feed = feeds.feed_by_name(connection, name, actor.owner)
    if feed is None:
        near = did_you_mean(name, feeds.live_names(connection, actor.owner))
        raise NotFoundError(f"there is no feed {name}", hint=near or "`show feeds` lists all feeds")
    return _as_seen(connection, [feed], actor)[0]


def stream_named(connection: Connection, name: str, actor: Actor) -> Feed:
    """Return the feed like `feed_named`, and raise NotFoundError if it is a table."""
    feed = feed_named(connection, name, actor)
    if feed.kind is FeedKind.TABLE:
        raise NotFoundError(f"{name} is a table, not a feed", hint=f"`show rows {render_name(name)}` shows its rows")
    return feed


def readable_feeds(connection: Connection, actor: Actor) -> list[Feed]:
    """Return the live feeds that an actor may read, in order of declaration, as the actor may see them."""
    return _as_seen(connection, feeds.live_feeds(connection, actor.owner), actor)


def _as_seen(connection: Connection, visible: Sequence[Feed], actor: Actor) -> list[Feed]:
    """Remove what the actor may not see: URLs are cut to the host, and paths of files are removed."""
    cut = {feed.id for feed in visible if not actor.sees_all_of(feed) and (feed.address or feed.home)}
    tags = tags_of(connection, cut) if cut else {}
    return [_without_paths(feed, tags.get(feed.id, ())) if feed.id in cut else feed for feed in visible]


def _without_paths(feed: Feed, tags: tuple[str, ...]) -> Feed:
    address, home = host_address(feed.address), host_address(feed.home)
    shown = RegisterFeed(
        Name(feed.name),
        address,
        feed.every if address else None,
        title=feed.title,
        home=home,
        tags=tags,
        open_items=feed.open_items,
    )
    return replace(feed, address=address, home=home, statement=print_statement(shown))


def host_address(address: str | None) -> str | None:
    """Return the part of a web address that everyone may see, or None for paths of files and invalid addresses.

    >>> host_address("https://ann:key@feeds.example:8443/private/7f3a.xml?token=x#y")
    'https://feeds.example:8443'
    >>> host_address("/srv/drop"), host_address("file:///srv/drop"), host_address("https://[broken")
    (None, None, None)
    """
    if address is None or not is_web(address):
        return None
    try:
        split = urlsplit(address)
    except ValueError:
        return None
    host = split.netloc.rpartition("@")[2]
    return f"{split.scheme}://{host}" if host else None


def matched_since(connection: Connection, actor: Actor, among: Iterable[int] | None = None) -> dict[int, int]:
    """Return the feeds that are matched as far as an actor may know, each with the sequence after which it is.

    For an owner, a feed of the admin is matched only because of the owner's own subscriptions and only since then:
    the owner must not learn that others subscribe to it.
    """
    live = feeds.since_of(connection, among)
    if actor.is_admin or not live:
        return live
    owner_of = feeds.feed_owners(connection, live)
    caused = _caused_since(connection, actor.owner) if ADMIN in owner_of.values() else {}
    own = {feed: since for feed, since in live.items() if owner_of[feed] == actor.owner}
    shared = {feed: max(since, caused[feed]) for feed, since in live.items() if feed not in own and feed in caused}
    return own | shared


def sees_matches(connection: Connection, feed: Feed, sequence: int, actor: Actor) -> bool:
    """Return whether an actor may know if the item of a sequence was recorded as a match of a feed."""
    if actor.sees_all_of(feed):
        return True
    return sequence > matched_since(connection, actor, [feed.id]).get(feed.id, sequence)


def _caused_since(connection: Connection, owner: int) -> dict[int, int]:
    """Return the feeds that are matched because of an owner's subscriptions, with the sequence after which each is.

    These are the feeds to which the owner subscribes, and the views that they read, directly or indirectly.
    """
    caused: dict[int, int] = {}
    live = subscriptions.live_subscriptions(connection, owner=owner)
    for subscription in sorted(live, key=lambda subscription: subscription.since):
        new = {subscription.feed} - caused.keys()
        while new:
            caused |= dict.fromkeys(new, subscription.since)
            kinds = feeds.live_kinds(connection, feeds.direct_sources(connection, new) - caused.keys())
            new = {feed for feed, kind in kinds.items() if kind is FeedKind.VIRTUAL}
    return caused


def own_feed(connection: Connection, name: str, actor: Actor) -> Feed:
    """Return the feed like `feed_named`, and raise NotAllowedError if the actor does not own it."""
    feed = feed_named(connection, name, actor)
    if feed.owner != actor.owner:
        raise NotAllowedError(
            f"{name} belongs to the admin; you can read it but not change it", hint="register a feed of your own"
        )
    return feed


def operator_reason(reason: str, actor: Actor) -> str:
    """Return why an operator failed. Owners get a general text, because the reason may contain servers and paths."""
    return reason if actor.is_admin else "the operator failed; the admin can see the reason"


def names_for(connection: Connection, actor: Actor) -> dict[int, str]:
    """Return names by id of the feeds that an actor may read. The admin sees feeds of others as `name of owner`."""
    if not actor.is_admin:
        return feeds.readable_names(connection, actor.owner)
    names = {feed: name for feed, name in feeds.feed_names(connection).items() if not is_hidden(name)}
    owner_names = owners.owner_names(connection)
    if len(owner_names) > 1:
        foreign = {feed: owner for feed, owner in feeds.feed_owners(connection, names).items() if owner != ADMIN}
        names |= {feed: f"{names[feed]} of {owner_names.get(owner, owner)}" for feed, owner in foreign.items()}
    return names


def size_of(items: Sequence[Item]) -> int:
    """Return the approximate size of items in bytes for quotas: their texts, and eight for every other value.

    >>> size_of([Item("Wire", "1", {"title": ("Rock",), "n": (3.0,)})])
    19
    """
    return sum(
        len(item.id)
        + sum(
            len(name) + sum(len(value.encode()) if isinstance(value, str) else 8 for value in values)
            for name, values in item.attributes.items()
        )
        for item in items
    )
