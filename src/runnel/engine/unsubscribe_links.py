"""Unsubscribe links in messages: the recipient may end that subscription, and nothing else.

In: the untrusted token of a link. Out: the name of its feed, or None if the link is not valid.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from runnel.catalog.access import consents
from runnel.catalog.access.workspace_secrets import UNSUBSCRIBE, check_unsubscribe_token, find_secret
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.delivery import ledger
from runnel.engine.declare.commit_change import commit_change
from runnel.engine.declare.scope import NeedsLockError, Pending
from runnel.engine.workspace import Workspace
from runnel.model.feed import ADMIN
from runnel.model.subscription import Subscription


def feed_of_link(workspace: Workspace, token: str) -> str | None:
    """Return the name of the feed whose messages a link would end, without changing anything."""
    with workspace.catalog.read() as connection:
        subscription = _subscription(connection, token)
        return None if subscription is None else _feed_name(connection, subscription)


def end_by_link(workspace: Workspace, token: str) -> str | None:
    """End the subscription of a link. Return the name of its feed."""
    if feed_of_link(workspace, token) is None:
        return None  # check the token without the write lock, so that guesses do not block writers

    def end(connection: Connection, *, is_read_only: bool, numbers: Mapping[str, int]) -> tuple[str | None, Pending]:
        subscription = _subscription(connection, token)
        if subscription is None:
            return None, Pending(connection)
        if is_read_only:
            raise NeedsLockError
        name = _feed_name(connection, subscription)
        subscriptions.end_subscription(connection, subscription.id)
        ledger.drop_cursor(connection, subscription.id)
        _withdraw(connection, subscription)
        return name, Pending(connection, touched={subscription.feed})

    return commit_change(workspace, end)


def _withdraw(connection: Connection, ended: Subscription) -> None:
    """Require a new confirmation, because the recipient ended a subscription of an owner.

    The owner's other subscriptions to the target wait for it and lose nothing.
    """
    if ended.owner == ADMIN:
        return
    consent = consents.consent_of(connection, *consents.key_of(ended))
    if consent is not None and consent.is_confirmed:
        for subscription in subscriptions.live_subscriptions(connection, owner=ended.owner):
            if consents.key_of(subscription) == consents.key_of(ended):
                subscriptions.give_own_cursor(connection, subscription)
        consents.withdraw_consent(connection, consent, "the recipient unsubscribed")


def _subscription(connection: Connection, token: str) -> Subscription | None:
    secret = find_secret(connection, UNSUBSCRIBE)
    number = None if secret is None else check_unsubscribe_token(secret, token)
    return None if number is None else subscriptions.subscription_by_number(connection, number)


def _feed_name(connection: Connection, subscription: Subscription) -> str:
    feed = feeds.feed_by_id(connection, subscription.feed)
    return "this feed" if feed is None else feed.name
