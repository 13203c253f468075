"""Bulk queries for delivery: the subscriptions that are due, their cursors and names.

A hundred thousand subscriptions may be due in the same minute, so no query here is per subscription.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, exists, literal, or_, select, update

from runnel.catalog.access.consents import is_unconfirmed
from runnel.catalog.declared.subscriptions import subscription_of
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.subscription import Subscription

_s, _c, _f = schema.subscriptions.c, schema.cursors.c, schema.feeds.c
_SENDS = (_s.ended.is_(None), _s.paused == 0, _s.disabled.is_(None), ~is_unconfirmed())
_MICROSECOND = timedelta(microseconds=1)
_FEW_FEEDS = 5_000


@dataclass(frozen=True, slots=True)
class SubscriptionCursor:
    """A subscription with its own cursor."""

    subscription: Subscription
    sequence: int


def sharing(
    connection: Connection,
    feeds: Collection[int] | None = None,
    *,
    silent: Collection[str] = (),
    limit: int | None = None,
) -> list[Subscription]:
    """Return the immediate subscriptions to these feeds (None: all feeds) that follow the shared cursor.

    Those of the `silent` kinds get no messages and are omitted.
    """
    rows = _sharing(connection, select(schema.subscriptions), feeds, silent, limit)
    return [subscription_of(row) for row in rows]


def sharing_numbers(connection: Connection, feeds: Collection[int], *, silent: Collection[str] = ()) -> set[int]:
    """Return the numbers of the subscriptions that `sharing` returns."""
    return {row.id for row in _sharing(connection, select(_s.id), feeds, silent, None)}


def _sharing(
    connection: Connection,
    query: Select[Any],
    feeds: Collection[int] | None,
    silent: Collection[str],
    limit: int | None,
) -> Iterable[Any]:
    has_cursor = exists().where(_c.subscription == _s.id)
    # Literals, not parameters: databases do not use a partial index if its condition is compared with a parameter.
    sends = (_s.kind != literal(kind, literal_execute=True) for kind in sorted(silent))
    query = query.where(*_SENDS, _s.period.is_(None), *sends, ~has_cursor).limit(limit)
    if feeds is None or len(feeds) > _FEW_FEEDS:
        return connection.execute(query).all()
    return [
        row for chunk in chunks(sorted(feeds)) for row in connection.execute(query.where(_s.feed.in_(chunk))).all()
    ]


def behind(connection: Connection, *, after: int, limit: int) -> list[SubscriptionCursor]:
    """Return a page, by number, of the immediate subscriptions that have their own cursor."""
    query = (
        select(schema.subscriptions, _c.sequence)
        .join(schema.cursors, _c.subscription == _s.id)
        .where(*_SENDS, _s.period.is_(None), _s.id > after)
        .order_by(_s.id)
        .limit(limit)
    )
    return [SubscriptionCursor(subscription_of(row), row.sequence) for row in connection.execute(query).all()]


def due(connection: Connection, *, after: int, limit: int) -> list[SubscriptionCursor]:
    """Return a page, by number, of the subscriptions whose period or lifetime has ended."""
    moment = now(connection)
    query = (
        select(schema.subscriptions, _c.sequence)
        .join(schema.cursors, _c.subscription == _s.id, isouter=True)
        .where(*_SENDS, _s.due.is_not(None), or_(_s.due <= moment, _s.expires <= moment), _s.id > after)
        .order_by(_s.id)
        .limit(limit)
    )
    return [
        SubscriptionCursor(subscription_of(row), row.since if row.sequence is None else row.sequence)
        for row in connection.execute(query).all()
    ]


def own_cursors(connection: Connection, subscriptions: Sequence[int]) -> dict[int, int | None]:
    """Return the cursors of these subscriptions, without those that are not served. None: no own cursor."""
    query = select(_s.id, _c.sequence).join(schema.cursors, _c.subscription == _s.id, isouter=True).where(*_SENDS)
    return {
        row.id: row.sequence
        for chunk in chunks(subscriptions)
        for row in connection.execute(query.where(_s.id.in_(chunk))).all()
    }


def leave_own_cursors(connection: Connection, subscriptions: Sequence[int]) -> None:
    """Delete the cursors of subscriptions that have caught up, so that they share the common cursor."""
    for chunk in chunks(subscriptions):
        connection.execute(delete(schema.cursors).where(_c.subscription.in_(chunk)))


def begin_next_periods(connection: Connection, subscriptions: Iterable[Subscription]) -> None:
    """Set the next time at which each subscription is due, skipping missed periods."""
    moment = now(connection)
    rows = []
    for subscription in subscriptions:
        if subscription.every is not None:
            period, created = subscription.every // _MICROSECOND, int(subscription.created.timestamp() * 1e6)
            rows.append({"of": subscription.id, "next": created + ((moment - created) // period + 1) * period})
    if rows:
        connection.execute(
            update(schema.subscriptions).where(_s.id == bindparam("of")).values(due=bindparam("next")), rows
        )


def subscriptions_of(connection: Connection, numbers: Sequence[int]) -> dict[int, Subscription]:
    """Return live subscriptions by number."""
    query = select(schema.subscriptions).where(_s.ended.is_(None))
    rows = (row for chunk in chunks(numbers) for row in connection.execute(query.where(_s.id.in_(chunk))).all())
    return {row.id: subscription_of(row) for row in rows}


def names_of(connection: Connection, feeds: Collection[int]) -> dict[int, str]:
    """Return the names of feeds, including dropped ones, because logs still refer to them."""
    query = select(_f.id, _f.name)
    rows = (row for chunk in chunks(sorted(feeds)) for row in connection.execute(query.where(_f.id.in_(chunk))))
    return {row.id: row.name for row in rows}


def newest_acceptance(connection: Connection) -> int:
    """Return the time of the newest accepted item, in microseconds since 1970."""
    column = schema.counters.c
    return int(connection.execute(select(column.value).where(column.name == "clock")).scalar_one())
