"""Expiry: subscriptions whose time is over end, and what only they needed is matched no more."""

from __future__ import annotations

from runnel.catalog import ledger, subscriptions
from runnel.engine.activation import activate
from runnel.engine.planning import publish_change
from runnel.engine.root import Root


def end_expired(root: Root) -> int:
    """End what has expired; gives how many subscriptions ended."""
    with root.catalog.read() as connection:
        if not subscriptions.expired_subscriptions(connection):
            return 0
    with root.catalog.write() as connection:
        ended = subscriptions.expired_subscriptions(connection)
        for one in ended:
            subscriptions.end_subscription(connection, one.id)
            ledger.drop_cursor(connection, one.id)
        change = activate(connection, {one.feed for one in ended}, ())
        publish_change(root, connection, change, ())
    return len(ended)
