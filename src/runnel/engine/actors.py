"""Who acts: the operator, or an owner with a token; and what an actor may read.

What the operator declares all may read; everything else is private to its owner. A name means one's own feed first,
then the operator's. To everybody but its owner and the operator a private thing simply is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.access import owners, tokens
from runnel.catalog.declared import feeds
from runnel.engine.workspace import Workspace
from runnel.errors import NotAllowedError, NotFoundError
from runnel.language.nearest import did_you_mean
from runnel.model.feed import ADMIN, Feed
from runnel.model.item import Item
from runnel.model.subscription import Subscription


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
    """The live feed that a name means to an actor; raises NotFound with a near one."""
    found = feeds.feed_by_name(connection, name, actor.owner)
    if found is None:
        near = did_you_mean(name, feeds.live_names(connection, actor.owner))
        raise NotFoundError(f"there is no feed {name}", hint=near or "`show feeds` lists what there is")
    return found


def own_feed(connection: Connection, name: str, actor: Actor) -> Feed:
    """As `feed_named`, for something that only a feed's owner may do."""
    found = feed_named(connection, name, actor)
    if found.owner != actor.owner:
        raise NotAllowedError(
            f"{name} is the operator's feed: you may read it, not change it", hint="register a feed of your own"
        )
    return found


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
