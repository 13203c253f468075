"""Subscriptions in the catalog. An ended subscription keeps its row, because the ledger refers to it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select, update

from runnel.catalog.delivery import ledger
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.catalog.store.sequencer import log_time
from runnel.model.subscription import INTERNAL, Subscription

_s = schema.subscriptions.c
_LIVE = _s.ended.is_(None)
_MICROSECOND = timedelta(microseconds=1)


def end_subscription(connection: Connection, subscription: int) -> None:
    """End a subscription. Nothing more is sent."""
    connection.execute(update(schema.subscriptions).where(_s.id == subscription).values(ended=now(connection)))


def pause_subscription(connection: Connection, subscription: int, paused: bool) -> None:
    """Pause or resume a subscription. Items that match in the meantime are sent when it is resumed."""
    connection.execute(update(schema.subscriptions).where(_s.id == subscription).values(paused=int(paused)))


def renew_subscription(connection: Connection, subscription: int, lifetime: timedelta | None) -> int | None:
    """Extend a subscription by `lifetime` from now on (None: without end). Return when it expires."""
    expires = None if lifetime is None else log_time(connection) + lifetime // _MICROSECOND
    connection.execute(update(schema.subscriptions).where(_s.id == subscription).values(expires=expires))
    return expires


def disable_subscription(connection: Connection, subscription: Subscription, reason: str) -> None:
    """Stop sending, for a reason that is shown. Open messages and new matches wait."""
    give_own_cursor(connection, subscription)
    connection.execute(update(schema.subscriptions).where(_s.id == subscription.id).values(disabled=reason))


def enable_subscription(connection: Connection, subscription: int) -> int:
    """Resume sending to a disabled subscription immediately. Return the number of messages that waited."""
    values = {"disabled": None, "resumed": now(connection)}
    connection.execute(update(schema.subscriptions).where(_s.id == subscription).values(**values))
    return ledger.send_now(connection, [subscription])


def give_own_cursor(connection: Connection, subscription: Subscription) -> None:
    """Give a subscription that must wait its own cursor, at the current position of the shared one."""
    if ledger.cursor(connection, subscription.id) is None:
        shared = ledger.cursor(connection, ledger.SHARED) or 0
        ledger.set_cursor(connection, subscription.id, max(shared, subscription.since))


def live_subscriptions(
    connection: Connection, feed: int | None = None, *, owner: int | None = None
) -> list[Subscription]:
    """Return all live subscriptions, or those to one feed or of one owner."""
    query = select(schema.subscriptions).where(_LIVE).order_by(_s.id)
    if feed is not None:
        query = query.where(_s.feed == feed)
    if owner is not None:
        query = query.where(_s.owner == owner)
    return [subscription_of(row) for row in connection.execute(query)]


def internal_subscriptions(connection: Connection, feeds: Iterable[int]) -> list[Subscription]:
    """Return the live subscriptions that serve these materialized feeds."""
    query = select(schema.subscriptions).where(_LIVE, _s.kind == INTERNAL)
    targets = [str(feed) for feed in sorted(feeds)]
    rows = (row for chunk in chunks(targets) for row in connection.execute(query.where(_s.target.in_(chunk))))
    return [subscription_of(row) for row in rows]


def subscription_by_ticket(connection: Connection, ticket: bytes) -> Subscription | None:
    """Return the live subscription whose ticket has this digest."""
    row = connection.execute(select(schema.subscriptions).where(_s.ticket == ticket, _LIVE)).one_or_none()
    return None if row is None else subscription_of(row)


def subscription_by_number(connection: Connection, number: int) -> Subscription | None:
    """Return a live subscription by its number."""
    row = connection.execute(select(schema.subscriptions).where(_s.id == number, _LIVE)).one_or_none()
    return None if row is None else subscription_of(row)


def owner_of_message(connection: Connection, key: str) -> int | None:
    """Return the owner of a message's subscription, even if it has ended."""
    message = schema.messages.c
    query = select(_s.owner).join(schema.messages, message.subscription == _s.id).where(message.key == key)
    return connection.execute(query).scalar_one_or_none()


def subscription_to_target(connection: Connection, target: str) -> int | None:
    """Return the number of a live subscription with this target."""
    return connection.execute(select(_s.id).where(_LIVE, _s.target == target).limit(1)).scalar_one_or_none()


def live_targets(connection: Connection) -> dict[str, int]:
    """Return the targets of all live subscriptions, each with the number of one of its subscriptions."""
    query = select(_s.target, _s.id).where(_LIVE, _s.target.is_not(None))
    return {row.target: row.id for row in connection.execute(query)}


def subscribed_among(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Return the feeds that have a direct subscription."""
    query = select(_s.feed).where(_LIVE).distinct()
    return {
        row.feed for chunk in chunks(sorted(feeds)) for row in connection.execute(query.where(_s.feed.in_(chunk)))
    }


def expired_subscriptions(connection: Connection) -> list[Subscription]:
    """Return live subscriptions that have expired."""
    query = select(schema.subscriptions).where(_LIVE, _s.expires <= now(connection))
    return [subscription_of(row) for row in connection.execute(query)]


def subscription_of(row: Any) -> Subscription:
    """Convert a row to a subscription."""
    return Subscription(
        id=row.id,
        feed=row.feed,
        kind=row.kind,
        target=row.target,
        since=row.since,
        created=moment_of(row.created),
        every=None if row.period is None else timedelta(microseconds=row.period),
        expires=None if row.expires is None else moment_of(row.expires),
        paused=bool(row.paused),
        owner=row.owner,
        sheet=row.sheet,
        disabled=row.disabled,
    )


def moment_of(microseconds: int) -> datetime:
    """Convert a catalog time to a date in UTC.

    >>> moment_of(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
