"""Bulk inserts of the feeds and subscriptions that a script declares.

In: new feeds and subscriptions, with ids from `changes.next_number`. Out: rows. Inserting one row at a time takes ten
times as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Table, func, insert, select

from runnel.algebra.nodes.encode import encode_node
from runnel.algebra.nodes.query import Node, reads
from runnel.catalog.access.consents import WantedConsent, want_consents
from runnel.catalog.declared.changes import take_numbers
from runnel.catalog.declared.feed_groups import note_groups
from runnel.catalog.declared.operators import may_call, note_uses
from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.catalog.store.sealed_secrets import SIGNING_KEYS, seal
from runnel.catalog.store.sequencer import log_time
from runnel.model.feed import ADMIN, FeedKind

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class NewFeed:
    """A declared feed that is not written yet. `encode_feed` encodes its node before the lock is taken."""

    id: int
    name: str
    kind: FeedKind
    statement: str
    address: str | None = None
    node: Node | None = None
    owner: int = ADMIN
    every: timedelta | None = None
    tags: tuple[str, ...] = ()
    encoded: str | None = None
    origin: int | None = None
    sheet: str | None = None
    title: str | None = None
    home: str | None = None
    open_items: int | None = None


def encode_feed(node: Node) -> str:
    """Encode a node for the catalog."""
    return json.dumps(encode_node(node), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A declared subscription that is not written yet.

    It starts at the end of the log when it is written, or after `since` if that is earlier. `ticket` is a digest.
    With `has_cursor` it has its own cursor. `key` signs its messages. If a `consent` of its target is needed, it
    waits for it.
    """

    id: int
    feed: int
    kind: str
    target: str | None
    every: timedelta | None = None
    lifetime: timedelta | None = None
    owner: int = ADMIN
    ticket: bytes | None = None
    sheet: str | None = None
    since: int | None = None
    has_cursor: bool = False
    key: bytes | None = None
    consent: WantedConsent | None = None


def add_feeds(connection: Connection, new: Sequence[NewFeed], sequence: int, matched: Set[int] = frozenset()) -> None:
    """Write feeds. Those in `matched` are matched after `sequence`."""
    if not new:
        return
    created = now(connection)
    # A revision stores the plan that was current before it. It applies to all later plans.
    plan = connection.execute(select(func.coalesce(func.max(schema.plans.c.version), 0))).scalar_one()
    _insert(connection, schema.feeds, (_feed_row(feed, created, sequence, matched) for feed in new))
    _insert(connection, schema.revisions, (_revision_row(feed, created, plan) for feed in new))
    _insert(
        connection,
        schema.reads,
        (
            {"feed": feed.id, "source": source}
            for feed in new
            if feed.node is not None
            for source in set(reads(feed.node))
        ),
    )
    note_groups(connection, {feed.id: feed.node for feed in new if feed.node is not None})
    note_uses(connection, {feed.id: feed.node for feed in new if feed.node is not None and may_call(feed.encoded)})
    _insert(connection, schema.tags, ({"feed": feed.id, "tag": tag} for feed in new for tag in feed.tags))
    take_numbers(connection, "feeds", new[-1].id)


def _feed_row(new: NewFeed, created: int, sequence: int, matched: Set[int]) -> dict[str, Any]:
    return {
        "id": new.id,
        "name": new.name,
        "kind": new.kind.value,
        "address": new.address,
        "revision": 1,
        "paused": 0,
        "since": sequence if new.id in matched else None,
        "created": created,
        "owner": new.owner,
        "period": None if new.every is None else new.every // _MICROSECOND,
        "origin": new.origin,
        "sheet": new.sheet,
        "bytes": 0,
        "title": new.title,
        "home": new.home,
        "open_items": new.open_items,
    }


def _revision_row(new: NewFeed, created: int, plan: int) -> dict[str, Any]:
    return {
        "feed": new.id,
        "revision": 1,
        "statement": new.statement,
        "node": new.encoded,
        "paused": 0,
        "plan": plan,
        "created": created,
    }


def add_subscriptions(connection: Connection, new: Sequence[NewSubscription], sequence: int) -> None:
    """Write subscriptions with their cursors and keys. They start after `sequence` or earlier."""
    if not new:
        return
    created, accepted = now(connection), log_time(connection)
    waiting = want_consents(
        connection, (subscription.consent for subscription in new if subscription.consent is not None)
    )
    _insert(
        connection,
        schema.subscriptions,
        (_subscription_row(subscription, created, accepted, sequence) for subscription in new),
    )
    _insert(
        connection,
        schema.cursors,
        (
            {"subscription": subscription.id, "sequence": _since(subscription, sequence)}
            for subscription in new
            if subscription.has_cursor or (subscription.consent is not None and subscription.consent.key in waiting)
        ),
    )
    _insert(
        connection,
        schema.signing_keys,
        (
            {
                "subscription": subscription.id,
                "created": created,
                **seal(connection, SIGNING_KEYS, subscription.id, subscription.key),
            }
            for subscription in new
            if subscription.key is not None
        ),
    )
    take_numbers(connection, "subscriptions", new[-1].id)


def _subscription_row(new: NewSubscription, created: int, accepted: int, sequence: int) -> dict[str, Any]:
    period = None if new.every is None else new.every // _MICROSECOND
    return {
        "id": new.id,
        "feed": new.feed,
        "kind": new.kind,
        "target": new.target,
        "period": period,
        # Use the log's time, which never goes back, for the end of a subscription, as for the times of items.
        "expires": None if new.lifetime is None else accepted + new.lifetime // _MICROSECOND,
        "since": _since(new, sequence),
        "due": None if period is None else created + period,
        "paused": 0,
        "created": created,
        "owner": new.owner,
        "ticket": new.ticket,
        "sheet": new.sheet,
    }


def _since(new: NewSubscription, sequence: int) -> int:
    return sequence if new.since is None else min(new.since, sequence)


def _insert(connection: Connection, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    values = list(rows)
    if not values:
        return
    compiled = insert(table).compile(dialect=connection.dialect, column_keys=list(values[0]))
    order = getattr(compiled, "positiontup", None)
    if order and len(order) > 1:  # pass plain tuples to SQLite's driver, which halves the time that the lock is held
        connection.exec_driver_sql(str(compiled), list(map(itemgetter(*order), values)))
    else:
        connection.execute(insert(table), values)
