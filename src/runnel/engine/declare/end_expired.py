"""End expired subscriptions, and stop matching the queries that only they needed."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from runnel.catalog.access.consents import unconfirmed_among
from runnel.catalog.declared import subscriptions
from runnel.catalog.delivery import ledger
from runnel.catalog.logs import match_segments
from runnel.engine.declare.commit_change import commit_change
from runnel.engine.declare.scope import NeedsLockError, Pending
from runnel.engine.workspace import Workspace
from runnel.model.subscription import Subscription
from runnel.sinks.registry import silent_kinds


def end_expired(workspace: Workspace) -> int:
    """End the expired subscriptions for which everything has been delivered, and return their number."""
    with workspace.catalog.read() as connection:
        expired = subscriptions.expired_subscriptions(connection)
    if not expired:
        return 0
    last = {subscription.id: _last_sequence(workspace, subscription) for subscription in expired}
    with workspace.catalog.read() as connection:
        if not any(_is_complete(connection, subscription, last[subscription.id]) for subscription in expired):
            return 0  # messages are still to be sent; do not make other declarations wait

    def end(connection: Connection, *, is_read_only: bool, numbers: Mapping[str, int]) -> tuple[int, Pending]:
        ended = [
            subscription
            for subscription in subscriptions.expired_subscriptions(connection)
            if subscription.id in last and _is_complete(connection, subscription, last[subscription.id])
        ]
        if ended and is_read_only:
            raise NeedsLockError
        for subscription in ended:
            subscriptions.end_subscription(connection, subscription.id)
            ledger.drop_cursor(connection, subscription.id)
        return len(ended), Pending(connection, touched={subscription.feed for subscription in ended})

    return commit_change(workspace, end)


def _last_sequence(workspace: Workspace, subscription: Subscription) -> int:
    expires = subscription.expires
    return 0 if expires is None else workspace.items.sequence_before(int(expires.timestamp() * 1e6))


def _is_complete(connection: Connection, subscription: Subscription, last: int) -> bool:
    """Return whether all items up to the sequence `last` are matched, and their messages are created and sent.

    Return True if the subscription is disabled or not confirmed, because nothing is sent to it.
    """
    if subscription.disabled is not None or unconfirmed_among(connection, [subscription.id]):
        return True
    if subscription.kind in silent_kinds():
        return match_segments.matched_upto(connection) >= last
    own_cursor = ledger.cursor(connection, subscription.id)
    cursor = own_cursor if own_cursor is not None else ledger.cursor(connection, ledger.SHARED) or 0
    return cursor >= last and not ledger.has_open(connection, subscription.id)
