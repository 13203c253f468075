"""Expiry: subscriptions whose time is over end, and what only they needed is matched no more."""

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
    """End what has expired and has got all it was to get; gives how many subscriptions ended."""
    with workspace.catalog.read() as connection:
        expired = subscriptions.expired_subscriptions(connection)
    if not expired:
        return 0
    last = {one.id: _last_sequence(workspace, one) for one in expired}
    with workspace.catalog.read() as connection:
        if not any(_has_all(connection, one, last[one.id]) for one in expired):
            return 0  # as long as something is still to be sent; nobody else's declaration is disturbed

    def end(connection: Connection, *, ahead: bool, numbers: Mapping[str, int]) -> tuple[int, Pending]:
        ended = [
            one
            for one in subscriptions.expired_subscriptions(connection)
            if one.id in last and _has_all(connection, one, last[one.id])
        ]
        if ended and ahead:
            raise NeedsLockError
        for one in ended:
            subscriptions.end_subscription(connection, one.id)
            ledger.drop_cursor(connection, one.id)
        return len(ended), Pending(connection, touched={one.feed for one in ended})

    return commit_change(workspace, end)


def _last_sequence(workspace: Workspace, subscription: Subscription) -> int:
    expires = subscription.expires
    return 0 if expires is None else workspace.items.sequence_before(int(expires.timestamp() * 1e6))


def _has_all(connection: Connection, subscription: Subscription, last: int) -> bool:
    """Whether all that was accepted before the expiry is matched, recorded as messages, and sent.

    Nothing is sent to a subscription that is disabled or was not confirmed, so there is nothing to wait for.
    """
    if subscription.disabled is not None or unconfirmed_among(connection, [subscription.id]):
        return True
    if subscription.kind in silent_kinds():
        return match_segments.matched_upto(connection) >= last
    own = ledger.cursor(connection, subscription.id)
    reached = own if own is not None else ledger.cursor(connection, ledger.SHARED) or 0
    return reached >= last and not ledger.has_open(connection, subscription.id)
