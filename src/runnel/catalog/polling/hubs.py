"""Hubs in the catalog: the WebSub subscriptions that Runnel requested, and their states.

In: requests to a hub and its responses. Out: the subscription of a feed, or of a callback that a hub calls. A feed
has at most one row; another hub or topic replaces it under another callback. Times are microseconds since 1970.
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
    """The state of a subscription at a hub."""

    PENDING = "pending"
    """Requested; the hub has not verified it."""
    ACTIVE = "active"
    """Verified; the hub pushes until the lease expires."""
    RENEWING = "renewing"
    """Active, and requested again."""
    DENIED = "denied"
    """The hub denied it."""
    FAILED = "failed"
    """The request to the hub failed."""
    ENDING = "ending"
    """The feed was dropped; the hub was asked to stop."""


PUSHING = frozenset({HubState.ACTIVE, HubState.RENEWING})


@dataclass(frozen=True, slots=True)
class HubRow:
    """A subscription at a hub. `callback` is the secret part of the URL that the hub calls."""

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
        """Omit the secrets, so that they do not appear in logs."""
        return f"HubRow(feed={self.feed}, hub={self.hub!r}, topic={self.topic!r}, state={self.state.value!r})"

    def pushes(self, moment: int) -> bool:
        """Return whether the hub must push at a time."""
        return self.state in PUSHING and self.lease_until is not None and self.lease_until > moment


def put_hub(connection: Connection, row: HubRow) -> None:
    """Write the subscription of a feed, replacing an earlier one."""
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
    """Set the state of a subscription. Without `lease_until` its lease stays unchanged."""
    values: dict[str, Any] = {"state": state.value, "problem": None if problem is None else problem[:500]}
    if lease_until is not None:
        values["lease_until"] = lease_until
    connection.execute(update(schema.hubs).where(_h.callback == callback).values(values))


def remove_hub(connection: Connection, callback: str) -> None:
    """Delete a subscription. Calls of its callback are refused from now on."""
    connection.execute(delete(schema.hubs).where(_h.callback == callback))


def hub_by_callback(connection: Connection, callback: str) -> HubRow | None:
    """Return the subscription of a callback."""
    row = connection.execute(select(schema.hubs).where(_h.callback == callback)).one_or_none()
    return None if row is None else _row(connection, row)


def hubs_of(connection: Connection, feeds: Sequence[int] | None = None) -> dict[int, HubRow]:
    """Return the subscriptions of these feeds, or all, by feed."""
    if feeds is None:
        return {row.feed: _row(connection, row) for row in connection.execute(select(schema.hubs).order_by(_h.feed))}
    return {
        row.feed: _row(connection, row)
        for chunk in chunks(sorted(feeds))
        for row in connection.execute(select(schema.hubs).where(_h.feed.in_(chunk)))
    }


def to_renew(connection: Connection) -> list[HubRow]:
    """Return subscriptions of live feeds with less than a third of the lease left, or whose request failed."""
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
            # Requested, but not verified: repeat every hour, or sooner if the lease expires soon.
            return moment >= asked + min(_HOUR, max(left // 2, _MINUTE))
        case HubState.ENDING:
            return False
        case _:
            return moment >= asked + _DAY


def of_dropped_feeds(connection: Connection) -> list[HubRow]:
    """Return subscriptions whose feeds were dropped."""
    query = select(schema.hubs).join(schema.feeds, _f.id == _h.feed).where(_f.dropped.is_not(None))
    return [_row(connection, row) for row in connection.execute(query)]


def count(connection: Connection, what: str) -> None:
    """Count an event of hubs, such as a push with a wrong signature."""
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
