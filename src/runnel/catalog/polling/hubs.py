"""Hubs in the catalog: the WebSub subscriptions that Runnel asked for, and how far each has come.

In: what was asked of a hub, and what it answered. Out: the one subscription of a feed, or of a callback that a hub
calls. A feed has at most one row; another hub or topic takes its place under another callback. Times are
microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.catalog.store.sealed_secrets import HUBS, seal, unseal

_h, _f, _c = schema.hubs.c, schema.feeds.c, schema.counters.c
_COUNTED = "websub_"
_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


class HubState(StrEnum):
    """How far a subscription at a hub has come."""

    PENDING = "pending"
    """Asked for; the hub has not verified it."""
    ACTIVE = "active"
    """Verified; the hub pushes until the lease ends."""
    RENEWING = "renewing"
    """Active, and asked for again."""
    DENIED = "denied"
    """The hub does not want it."""
    FAILED = "failed"
    """The hub could not be asked."""
    ENDING = "ending"
    """The feed is gone; the hub was asked to stop."""


PUSHING = frozenset({HubState.ACTIVE, HubState.RENEWING})


@dataclass(frozen=True, slots=True)
class HubRow:
    """A subscription at a hub. `callback` is the secret part of the address that the hub calls."""

    feed: int
    hub: str
    topic: str
    callback: str
    secret: bytes
    state: HubState
    requested: int | None = None
    lease_until: int | None = None
    problem: str | None = None

    def __repr__(self) -> str:
        """Without what nobody may read in a log."""
        return f"HubRow(feed={self.feed}, hub={self.hub!r}, topic={self.topic!r}, state={self.state.value!r})"

    def pushes(self, moment: int) -> bool:
        """Whether the hub is bound to push at a moment."""
        return self.state in PUSHING and self.lease_until is not None and self.lease_until > moment


def put_hub(connection: Connection, row: HubRow) -> None:
    """Write the subscription of a feed, in place of any other."""
    connection.execute(delete(schema.hubs).where(_h.feed == row.feed))
    connection.execute(
        insert(schema.hubs).values(
            feed=row.feed,
            hub=row.hub,
            topic=row.topic,
            callback=row.callback,
            **seal(connection, HUBS, row.feed, row.secret),
            state=row.state.value,
            requested=row.requested,
            lease_until=row.lease_until,
            problem=row.problem,
        )
    )


def set_state(
    connection: Connection,
    callback: str,
    state: HubState,
    *,
    lease_until: int | None = None,
    problem: str | None = None,
) -> None:
    """What became of a subscription; without `lease_until` its lease stays as it is."""
    values: dict[str, Any] = {"state": state.value, "problem": None if problem is None else problem[:500]}
    if lease_until is not None:
        values["lease_until"] = lease_until
    connection.execute(update(schema.hubs).where(_h.callback == callback).values(values))


def remove_hub(connection: Connection, callback: str) -> None:
    """Forget a subscription: whoever calls its callback from now on calls nobody."""
    connection.execute(delete(schema.hubs).where(_h.callback == callback))


def hub_by_callback(connection: Connection, callback: str) -> HubRow | None:
    """The subscription whose callback a hub called."""
    row = connection.execute(select(schema.hubs).where(_h.callback == callback)).one_or_none()
    return None if row is None else _row(connection, row)


def hubs_of(connection: Connection, feeds: Sequence[int] | None = None) -> dict[int, HubRow]:
    """The subscriptions of these feeds, or all, by feed."""
    if feeds is None:
        return {row.feed: _row(connection, row) for row in connection.execute(select(schema.hubs).order_by(_h.feed))}
    return {
        row.feed: _row(connection, row)
        for some in chunks(sorted(feeds))
        for row in connection.execute(select(schema.hubs).where(_h.feed.in_(some)))
    }


def to_renew(connection: Connection) -> list[HubRow]:
    """Subscriptions of live feeds of which two thirds of the lease are over, or that were asked for in vain."""
    moment = now(connection)
    query = select(schema.hubs).join(schema.feeds, _f.id == _h.feed).where(_f.dropped.is_(None))
    rows = (_row(connection, row) for row in connection.execute(query))
    return [row for row in rows if _wants_renewal(row, moment)]


def _wants_renewal(row: HubRow, moment: int) -> bool:
    asked, left = row.requested or 0, max((row.lease_until or 0) - moment, 0)
    match row.state:
        case HubState.ACTIVE:
            return moment >= asked + ((row.lease_until or 0) - asked) * 2 // 3
        case HubState.RENEWING if left:
            # Asked, and not called back: once an hour, or faster where little of the lease is left.
            return moment >= asked + min(_HOUR, max(left // 2, _MINUTE))
        case HubState.ENDING:
            return False
        case _:
            return moment >= asked + _DAY


def of_dropped_feeds(connection: Connection) -> list[HubRow]:
    """Subscriptions that nobody needs any more: their feeds were dropped."""
    query = select(schema.hubs).join(schema.feeds, _f.id == _h.feed).where(_f.dropped.is_not(None))
    return [_row(connection, row) for row in connection.execute(query)]


def count(connection: Connection, what: str) -> None:
    """Count something that happened with hubs, such as pushes whose signature is wrong."""
    build = postgresql_insert if connection.dialect.name == "postgresql" else sqlite_insert
    statement = build(schema.counters).values(name=_COUNTED + what, value=1)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": _c.value + 1}))


def _row(connection: Connection, row: Any) -> HubRow:
    return HubRow(
        feed=row.feed,
        hub=row.hub,
        topic=row.topic,
        callback=row.callback,
        secret=unseal(connection, HUBS, row),
        state=HubState(row.state),
        requested=row.requested,
        lease_until=row.lease_until,
        problem=row.problem,
    )
