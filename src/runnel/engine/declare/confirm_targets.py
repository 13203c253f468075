"""Statements on the consent of targets: confirm a subscription, or send its target another confirmation request."""

from __future__ import annotations

from runnel.catalog.access import consents
from runnel.catalog.access.workspace_secrets import find_secret
from runnel.catalog.declared import subscriptions
from runnel.catalog.store.connection import now
from runnel.delivery.confirmer import UNANSWERED
from runnel.engine.answers import Confirmed, MessagesDone
from runnel.engine.declare.scope import DeclarationScope
from runnel.errors import Span, StatementError
from runnel.language.syntax.statements import Confirm
from runnel.model.consent import Consent, ConsentState
from runnel.model.feed import ADMIN
from runnel.model.subscription import Subscription
from runnel.sinks.contract import ConfirmingSink
from runnel.sinks.registry import find_sink


def confirm(scope: DeclarationScope, statement: Confirm) -> Confirmed:
    """Apply `confirm subscription 12 'code'`. The admin can confirm without the code, even after a refusal."""
    subscription = scope.subscription(statement.subscription, statement.span)
    consent = _consent(scope, subscription)
    if consent is None or consent.is_confirmed:
        return Confirmed(
            f"subscription {subscription.id} needs no confirmation", subscription.id, subscription.target
        )
    if statement.code is not None:
        _check_code(scope, consent, statement.code, statement.span)
        outcome = "the code was entered"
    elif scope.actor.is_admin:
        _forget_refusal(scope, consent)
        outcome = "the admin confirmed it"
    else:
        raise StatementError(
            "only the admin can confirm a subscription without its code",
            span=statement.span,
            hint=f"enter the code that {subscription.target} received: "
            f"`confirm subscription {subscription.id} 'code';`",
        )
    consents.confirm_consent(scope.connection, consent, outcome)
    done = f"subscription {subscription.id} is confirmed: messages are sent to {subscription.target}"
    return Confirmed(done, subscription.id, subscription.target)


def _forget_refusal(scope: DeclarationScope, consent: Consent) -> None:
    """Delete a refusal. Other owners' consents become pending again, and their matches wait for the confirmation."""
    sink = find_sink(consent.kind)
    if not isinstance(sink, ConfirmingSink):
        return
    pending = consents.forget_refusal(scope.connection, consent, sink.refuser)
    for subscription in subscriptions.live_subscriptions(scope.connection) if pending else ():
        if consents.key_of(subscription) in pending:
            subscriptions.give_own_cursor(scope.connection, subscription)


def _check_code(scope: DeclarationScope, consent: Consent, code: str, span: Span) -> None:
    if consent.state is ConsentState.REFUSED:
        raise StatementError(
            f"{consent.target} refused messages from this workspace", span=span, hint="ask the admin"
        )
    secret = find_secret(scope.connection, consents.CONFIRMATION)
    if secret is None or not consents.is_challenge(secret, consent, code):
        raise StatementError(
            "the code does not belong to this subscription", span=span, hint="copy the whole code from the request"
        )
    if consent.expires <= now(scope.connection):
        raise StatementError(
            "the code has expired", span=span, hint="`send subscription N now;` sends another request"
        )


def request_again(scope: DeclarationScope, subscription: Subscription, span: Span) -> MessagesDone | None:
    """Schedule another confirmation request to a target. Return None if it has confirmed or need not confirm."""
    consent = _consent(scope, subscription)
    if consent is None or consent.is_confirmed:
        return None
    target = subscription.target
    if consent.state is ConsentState.REFUSED:
        raise StatementError(
            f"{target} refused messages from this workspace",
            span=span,
            hint=f"end the subscription, or ask the admin to `confirm subscription {subscription.id};`",
        )
    sink = find_sink(subscription.kind)
    sent = consents.unanswered_requests(scope.connection, consent.owner, consent.kind, consent.recipient)
    if isinstance(sink, ConfirmingSink) and sink.answers_later and sent >= UNANSWERED:
        raise StatementError(
            f"{target} did not answer {sent} confirmation requests, which is the limit",
            span=span,
            hint=f"the admin can confirm it: `confirm subscription {subscription.id};`",
        )
    consents.ask_again(scope.connection, consent, scope.workspace.settings.confirmation_days * consents.DAY)
    return MessagesDone(f"another confirmation request is sent to {target}", 0, subscription.id)


def _consent(scope: DeclarationScope, subscription: Subscription) -> Consent | None:
    if subscription.owner == ADMIN or subscription.target is None:
        return None
    return consents.consent_of(scope.connection, *consents.key_of(subscription))
