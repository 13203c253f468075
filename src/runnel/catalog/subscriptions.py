"""Subscriptions in the catalog. An ended one keeps its row: the ledger speaks of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, exists, insert, or_, select, update

from runnel.catalog import schema
from runnel.catalog.connection import chunks, now
from runnel.model.subscription import Subscription

_s = schema.subscriptions.c
_LIVE = _s.ended.is_(None)
_MICROSECOND = timedelta(microseconds=1)


def add_subscription(
    connection: Connection,
    feed: int,
    kind: str,
    target: str | None,
    *,
    since: int,
    every: timedelta | None,
    lifetime: timedelta | None,
) -> int:
    """Declare a subscription that starts after the sequence `since`; gives its number."""
    created = now(connection)
    period = None if every is None else every // _MICROSECOND
    result = connection.execute(
        insert(schema.subscriptions)
        .values(
            feed=feed,
            kind=kind,
            target=target,
            period=period,
            expires=None if lifetime is None else created + lifetime // _MICROSECOND,
            since=since,
            due=None if period is None else created + period,
            paused=0,
            created=created,
        )
        .returning(_s.id)
    )
    return int(result.scalar_one())


def end_subscription(connection: Connection, subscription: int) -> None:
    """End a subscription: nothing more is sent."""
    connection.execute(update(schema.subscriptions).where(_s.id == subscription).values(ended=now(connection)))


def pause_subscription(connection: Connection, subscription: int, paused: bool) -> None:
    """Hold or release a subscription; what matches meanwhile is sent when it is released."""
    connection.execute(update(schema.subscriptions).where(_s.id == subscription).values(paused=int(paused)))


def live_subscriptions(connection: Connection, feed: int | None = None) -> list[Subscription]:
    """All live subscriptions, or those to one feed."""
    query = select(schema.subscriptions).where(_LIVE).order_by(_s.id)
    if feed is not None:
        query = query.where(_s.feed == feed)
    return [_subscription(row) for row in connection.execute(query)]


def subscription_by_number(connection: Connection, number: int) -> Subscription | None:
    """A live subscription by its number."""
    row = connection.execute(select(schema.subscriptions).where(_s.id == number, _LIVE)).one_or_none()
    return None if row is None else _subscription(row)


def subscription_to_target(connection: Connection, target: str) -> int | None:
    """The number of a live subscription with this target."""
    return connection.execute(select(_s.id).where(_LIVE, _s.target == target).limit(1)).scalar_one_or_none()


def subscribed_among(connection: Connection, feeds: Iterable[int]) -> set[int]:
    """Those of the feeds that somebody subscribes to directly."""
    query = select(_s.feed).where(_LIVE).distinct()
    return {
        row.feed for chunk in chunks(sorted(feeds)) for row in connection.execute(query.where(_s.feed.in_(chunk)))
    }


def expired_subscriptions(connection: Connection) -> list[Subscription]:
    """Live subscriptions whose time is over."""
    query = select(schema.subscriptions).where(_LIVE, _s.expires <= now(connection))
    return [_subscription(row) for row in connection.execute(query)]


def due_subscriptions(connection: Connection) -> list[Subscription]:
    """Live, unpaused subscriptions with a period that is over, or whose time is."""
    over = or_(_s.due <= now(connection), _s.expires <= now(connection))
    query = select(schema.subscriptions).where(_LIVE, _s.paused == 0, _s.due.is_not(None), over)
    return [_subscription(row) for row in connection.execute(query)]


def lagging_subscriptions(connection: Connection) -> list[Subscription]:
    """Live, unpaused subscriptions without a period that have a cursor of their own."""
    query = select(schema.subscriptions).join(schema.cursors, schema.cursors.c.subscription == _s.id)
    rows = connection.execute(query.where(_LIVE, _s.paused == 0, _s.period.is_(None)))
    return [_subscription(row) for row in rows]


def sharing_subscriptions(connection: Connection, *, but: Iterable[str] = ()) -> list[Subscription]:
    """Live, unpaused subscriptions without a period that follow the shared cursor, `but` for some kinds."""
    own = exists().where(schema.cursors.c.subscription == _s.id)
    query = select(schema.subscriptions).where(
        _LIVE, _s.paused == 0, _s.period.is_(None), _s.kind.not_in(list(but)), ~own
    )
    return [_subscription(row) for row in connection.execute(query)]


def next_period(connection: Connection, subscription: Subscription) -> None:
    """Set the next time at which a subscription with a period is due, skipping periods that were missed."""
    if subscription.every is None:
        return
    period = subscription.every // _MICROSECOND
    created = int(subscription.created.timestamp() * 1e6)
    passed = (now(connection) - created) // period
    connection.execute(
        update(schema.subscriptions).where(_s.id == subscription.id).values(due=created + (passed + 1) * period)
    )


def _subscription(row: Any) -> Subscription:
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
    )


def moment_of(microseconds: int) -> datetime:
    """A catalog time as a moment in UTC.

    >>> moment_of(0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
