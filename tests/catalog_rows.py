"""Rows of the catalog for tests: declare a feed or a subscription in one call, read rows that no command reads."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, func, select

from runnel.algebra.nodes.query import Node
from runnel.catalog.declared.bulk_insert import (
    NewFeed,
    NewSubscription,
    add_feeds,
    add_subscriptions,
    encode_feed,
)
from runnel.catalog.declared.changes import next_number
from runnel.catalog.delivery import ledger
from runnel.catalog.store import schema
from runnel.model.feed import ADMIN, FeedKind
from runnel.model.message import Message, MessageState

_m = schema.messages.c


def add_feed(
    connection: Connection,
    name: str,
    kind: FeedKind,
    statement: str,
    *,
    address: str | None = None,
    node: Node | None = None,
    owner: int = ADMIN,
    every: timedelta | None = None,
    origin: int | None = None,
    sheet: str | None = None,
) -> int:
    """Declare a feed; gives its id."""
    new = NewFeed(
        next_number(connection, "feeds"),
        name,
        kind,
        statement,
        address=address,
        node=node,
        owner=owner,
        every=every,
        encoded=None if node is None else encode_feed(node),
        origin=origin,
        sheet=sheet,
    )
    add_feeds(connection, [new], 0)
    return new.id


def add_subscription(
    connection: Connection,
    feed: int,
    kind: str,
    target: str | None,
    *,
    since: int,
    every: timedelta | None,
    lifetime: timedelta | None,
    owner: int = ADMIN,
    ticket: bytes | None = None,
    sheet: str | None = None,
) -> int:
    """Declare a subscription that starts after the sequence `since`; gives its number."""
    number = next_number(connection, "subscriptions")
    new = NewSubscription(number, feed, kind, target, every, lifetime, owner, ticket, sheet)
    add_subscriptions(connection, [new], since)
    return number


def operators_of(connection: Connection, feed: int) -> list[str]:
    """The operators that a query uses itself, by name."""
    column = schema.uses_operators.c
    return list(
        connection.execute(select(column.operator).where(column.feed == feed).order_by(column.operator)).scalars()
    )


def cursors(connection: Connection) -> dict[int, int]:
    """The sequences up to which cursors have come, by subscription."""
    return {row.subscription: row.sequence for row in connection.execute(select(schema.cursors))}


def open_messages(connection: Connection) -> list[Message]:
    """All messages on their way, by subscription and number."""
    subscriptions = connection.execute(select(_m.subscription).distinct().order_by(_m.subscription)).scalars().all()
    return [
        message
        for subscription in subscriptions
        for message in ledger.messages_of(connection, subscription)
        if message.state is MessageState.OPEN
    ]


def settle(connection: Connection, message: Message, state: MessageState, outcome: str) -> None:
    """Record how one attempt ended; an open message may be tried again at once."""
    ledger.settle_all(connection, [ledger.SettledAttempt(message, state, outcome)])


def message_counts(connection: Connection) -> dict[str, int]:
    """How many messages of the ledger are open, done and dead."""
    query = select(_m.state, func.count()).group_by(_m.state)
    return {str(state): int(count) for state, count in connection.execute(query)}


def hub_counts(connection: Connection) -> dict[str, int]:
    """How many pushes of hubs were accepted (`pushes`) and `refused`."""
    column = schema.counters.c
    results = {row.name: int(row.value) for row in connection.execute(select(column.name, column.value))}
    return {name: results.get(f"websub_{name}", 0) for name in ("pushes", "refused")}
