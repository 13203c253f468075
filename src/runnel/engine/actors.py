"""Who acts: the admin, or an owner with a token; and what an actor may see of a feed.

Everybody may read the admin's feeds. All other feeds are private: to everybody but their owner and the admin they do
not exist. A name means the actor's own feed first, then the admin's. To an owner, a feed of the admin has a name, a
query or the host that it comes from, and the matches that the owner's own subscriptions cause. Paths and query
strings of addresses, paths of files, and everything that depends on the subscriptions of others are left out here, so
that no answer can contain them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from sqlalchemy import Connection

from runnel.catalog.access import owners, tokens
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.declared.tags import tags_of
from runnel.engine.workspace import Workspace
from runnel.errors import NotAllowedError, NotFoundError
from runnel.language.nearest import did_you_mean
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import Name, RegisterFeed
from runnel.model.feed import ADMIN, Feed, FeedKind
from runnel.model.item import Item
from runnel.model.subscription import Subscription
from runnel.sources.feed_address import is_web


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who declares and asks: an owner's id and name, and the token by which they came, if by one."""

    owner: int
    name: str
    token: int | None = None

    @property
    def is_admin(self) -> bool:
        """Whether this is who installed the root: sees and may change everything."""
        return self.owner == ADMIN

    def may_read(self, owner: int) -> bool:
        """Whether feeds of that owner are there for this actor."""
        return self.is_admin or owner in (self.owner, ADMIN)

    def sees_all_of(self, feed: Feed) -> bool:
        """Whether the addresses and polls of a feed are this actor's to see."""
        return self.is_admin or feed.owner == self.owner

    def holds(self, subscription: Subscription) -> bool:
        """Whether a subscription is this actor's to see and change."""
        return self.is_admin or subscription.owner == self.owner


ADMIN_ACTOR = Actor(ADMIN, "operator")


def authenticate(root: Workspace, token: str) -> Actor:
    """The owner whose token this is; NotAllowed for a token that is wrong or revoked, or of a disabled owner."""
    with root.catalog.read() as connection:
        verified = tokens.verify_token(connection, token)
        owner = owners.owner_by_id(connection, verified.owner)
    if verified.fresh:
        with root.catalog.write() as connection:
            tokens.note_use(connection, verified.token)
    return Actor(owner.id, owner.name, verified.token)


def check_actor(connection: Connection, actor: Actor) -> None:
    """Raise NotAllowed if the token by which an actor came is of no use any more.

    An engine may be open for weeks, so this is looked at again whenever something is said, asked or published.
    """
    if actor.token is not None:
        tokens.check_token(connection, actor.token)


def actor_named(root: Workspace, name: str) -> Actor:
    """The owner of a name, for the operator to act for; a disabled one too, whose things the operator may tend."""
    with root.catalog.read() as connection:
        owner = owners.owner_by_name(connection, name)
    return Actor(owner.id, owner.name)


def feed_named(connection: Connection, name: str, actor: Actor) -> Feed:
    """The live feed that a name means to an actor, as the actor may see it; raises NotFoundError with a near name."""
    found = feeds.feed_by_name(connection, name, actor.owner)
    if found is None:
        near = did_you_mean(name, feeds.live_names(connection, actor.owner))
        raise NotFoundError(f"there is no feed {name}", hint=near or "`show feeds` lists all feeds")
    return _as_seen(connection, [found], actor)[0]


def readable_feeds(connection: Connection, actor: Actor) -> list[Feed]:
    """The live feeds that an actor may read, in the order of their declaration, each as the actor may see it."""
    return _as_seen(connection, feeds.live_feeds(connection, actor.owner), actor)


def _as_seen(connection: Connection, found: Sequence[Feed], actor: Actor) -> list[Feed]:
    """Feeds without what the actor may not see: addresses are cut to the host, paths of files are left out."""
    cut = {feed.id for feed in found if not actor.sees_all_of(feed) and (feed.address or feed.home)}
    tags = tags_of(connection, cut) if cut else {}
    return [_without_paths(feed, tags.get(feed.id, ())) if feed.id in cut else feed for feed in found]


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
    """The part of a web address that everybody may see; None for paths of files, and for what is no address.

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
    """The feeds that are matched as far as an actor may know, each with the sequence after which they are.

    An owner sees a feed of the admin as matched only because of their own subscriptions, and only from then on: that
    others subscribe to it is not theirs to know.
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
    """Whether an actor may know if the item of a sequence was recorded as a match of a feed."""
    if actor.sees_all_of(feed):
        return True
    return sequence > matched_since(connection, actor, [feed.id]).get(feed.id, sequence)


def _caused_since(connection: Connection, owner: int) -> dict[int, int]:
    """The feeds that an owner's subscriptions cause to be matched, with the sequence after which the first does.

    These are the feeds that the owner subscribes to, and the views that they read, directly or through others.
    """
    caused: dict[int, int] = {}
    held = subscriptions.live_subscriptions(connection, owner=owner)
    for subscription in sorted(held, key=lambda subscription: subscription.since):
        new = {subscription.feed} - caused.keys()
        while new:
            caused |= dict.fromkeys(new, subscription.since)
            kinds = feeds.live_kinds(connection, feeds.direct_sources(connection, new) - caused.keys())
            new = {feed for feed, kind in kinds.items() if kind is FeedKind.VIRTUAL}
    return caused


def own_feed(connection: Connection, name: str, actor: Actor) -> Feed:
    """As `feed_named`, for something that only a feed's owner may do."""
    found = feed_named(connection, name, actor)
    if found.owner != actor.owner:
        raise NotAllowedError(
            f"{name} belongs to the admin; you can read it but not change it", hint="register a feed of your own"
        )
    return found


def operator_reason(reason: str, actor: Actor) -> str:
    """Why an operator gave no answer, as far as an actor may know: it may name the admin's servers and files."""
    return reason if actor.is_admin else "the operator failed; the admin can see the reason"


def names_for(connection: Connection, actor: Actor) -> dict[int, str]:
    """Names by id of the feeds that an actor may read. To the operator others' feeds are shown as `name of owner`."""
    if not actor.is_admin:
        return feeds.readable_names(connection, actor.owner)
    names = feeds.feed_names(connection)
    owner_names = owners.owner_names(connection)
    if len(owner_names) > 1:
        foreign = {feed: owner for feed, owner in feeds.feed_owners(connection, names).items() if owner != ADMIN}
        names |= {feed: f"{names[feed]} of {owner_names.get(owner, owner)}" for feed, owner in foreign.items()}
    return names


def size_of(items: Sequence[Item]) -> int:
    """About how many bytes items are, as a quota counts them: their texts, and eight for anything else.

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
