"""Links in confirmation requests: the recipient may agree to the messages of an owner, or refuse all messages.

In: the untrusted token of a link. Out: its request, or None if the link is not valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.access import consents
from runnel.catalog.access.owners import owner_by_id
from runnel.catalog.access.workspace_secrets import find_secret
from runnel.catalog.declared import subscriptions
from runnel.catalog.store.connection import now
from runnel.engine.workspace import Workspace
from runnel.model.consent import Consent, ConsentState
from runnel.model.feed import ADMIN
from runnel.sinks.contract import ConfirmingSink
from runnel.sinks.registry import find_sink


@dataclass(frozen=True, slots=True)
class LinkedRequest:
    """The owner and target of a request, and whether the target can still agree."""

    owner: str
    target: str
    state: ConsentState
    is_open: bool


def request_of_link(workspace: Workspace, token: str) -> LinkedRequest | None:
    """Return the request of a link without changing anything."""
    with workspace.catalog.read() as connection:
        consent = _consent(connection, token)
        return None if consent is None else _request(connection, consent)


def confirm_by_link(workspace: Workspace, token: str) -> LinkedRequest | None:
    """Allow the messages of an owner. Return None if the link is not valid or has expired."""
    before = request_of_link(workspace, token)
    if before is None or not before.is_open:
        return before  # check the token without the write lock, so that guesses do not block writers
    with workspace.catalog.write() as connection:
        consent = _consent(connection, token)
        if consent is None or not _request(connection, consent).is_open:
            return None
        consents.confirm_consent(connection, consent, "the recipient confirmed with the link")
    return request_of_link(workspace, token)


def refuse_by_link(workspace: Workspace, token: str) -> LinkedRequest | None:
    """Refuse the messages of all owners to the recipient of a link. The admin's subscriptions are disabled."""
    if request_of_link(workspace, token) is None:
        return None
    with workspace.catalog.write() as connection:
        consent = _consent(connection, token)
        sink = None if consent is None else _sink(consent.kind)
        if consent is None or sink is None:
            return None
        consents.refuse_permanently(connection, consent, sink.refuser, "the recipient refused permanently")
        for subscription in subscriptions.live_subscriptions(connection, owner=ADMIN):
            if subscription.kind != consent.kind or subscription.target is None or subscription.disabled is not None:
                continue
            if sink.refuser(subscription.target) == sink.refuser(consent.target):
                subscriptions.disable_subscription(
                    connection, subscription, f"{subscription.target} refused all messages permanently"
                )
    return request_of_link(workspace, token)


def _consent(connection: Connection, token: str) -> Consent | None:
    """Return the consent of a link. Endpoints get no links, so their challenges are not valid in links."""
    consent = consents.consent_by_token(connection, find_secret(connection, consents.CONFIRMATION), token)
    sink = None if consent is None else _sink(consent.kind)
    return consent if sink is not None and sink.answers_later else None


def _request(connection: Connection, consent: Consent) -> LinkedRequest:
    is_open = consent.state is ConsentState.PENDING and consent.expires > now(connection)
    return LinkedRequest(owner_by_id(connection, consent.owner).name, consent.target, consent.state, is_open)


def _sink(kind: str) -> ConfirmingSink | None:
    sink = find_sink(kind)
    return sink if isinstance(sink, ConfirmingSink) else None
