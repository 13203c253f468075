"""Apply the statements on subscriptions in one open transaction: subscribe, renew, send, pause, unsubscribe."""

from __future__ import annotations

from datetime import timedelta

from runnel.catalog.access import consents, signing_keys
from runnel.catalog.access.consents import WantedConsent
from runnel.catalog.access.owners import OWNER_DISABLED
from runnel.catalog.access.tokens import new_ticket, ticket_digest
from runnel.catalog.declared import subscriptions
from runnel.catalog.declared.bulk_insert import NewSubscription
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.delivery import ledger
from runnel.catalog.store.connection import now
from runnel.delivery.confirmer import is_exempt
from runnel.delivery.dead_letters import replay as replay_letters
from runnel.delivery.settle_attempts import reason_of
from runnel.engine.answers import Dropped, MessagesDone, Renewed, Subscribed, SubscriptionDone, listed
from runnel.engine.declare.confirm_targets import request_again
from runnel.engine.declare.scope import DeclarationScope
from runnel.engine.workspace import Workspace
from runnel.errors import (
    DuplicateNameError,
    InputError,
    InvalidConditionError,
    Span,
    StatementError,
    UnknownNameError,
)
from runnel.language.syntax.statements import Pause, Renew, Replay, RotateKey, SendNow, Subscribe, Unsubscribe
from runnel.model.feed import ADMIN
from runnel.model.subscription import Subscription
from runnel.net.http_client import check_url
from runnel.sinks.contract import ConfirmingSink, RemoteSink, Sink
from runnel.sinks.registry import find_sink, installed_sinks, open_sink


def subscribe(scope: DeclarationScope, statement: Subscribe) -> Subscribed:
    """Apply `subscribe to Feed …`. Only the answer contains the ticket, and the signing key if there is one."""
    feed = scope.find_stream(statement.feed)
    scope.refuse_disabled(statement.feed.span)
    sink = _sink(scope, statement)
    target = _target(scope, statement, sink)
    consent = None if target is None else _wanted_consent(scope, statement, sink, target)
    scope.allowance.take("subscriptions")
    since = None
    if statement.back is not None:
        begin = now(scope.connection) - int(statement.back.total_seconds() * 1e6)
        since = scope.workspace.items.sequence_before(begin)
    ticket, digest = new_ticket()
    key = signing_keys.make_key() if sink.is_signed else None
    number = scope.pending.subscription_id()
    scope.subscribe(
        NewSubscription(
            number,
            feed.id,
            statement.kind,
            target,
            statement.every,
            statement.lifetime or default_lifetime(scope.workspace, scope.actor.owner, statement.kind),
            scope.actor.owner,
            digest,
            None if statement.sheet is None else scope.sheets[statement.sheet],
            since,
            # The subscription starts at an earlier item, or its messages are sent later than those of the others.
            has_cursor=statement.back is not None or statement.every is not None,
            key=key,
            consent=consent,
        )
    )
    where = f" {'to' if isinstance(sink, RemoteSink) else 'into'} {target}" if target else ""
    return Subscribed(
        f"subscription {number} to {feed.name}: {statement.kind}{where}",
        number,
        feed.name,
        statement.kind,
        target,
        ticket,
        shows_ticket=_needs_renewal(scope.actor.owner, sink),
        key=None if key is None else signing_keys.key_text(key),
        is_waiting=consent is not None and not scope.is_confirmed(consent),
    )


def default_lifetime(workspace: Workspace, owner: int, kind: str) -> timedelta | None:
    """Return the lifetime of a subscription without `for`, or None for the admin's local outputs, which never end."""
    days = workspace.settings.subscription_days
    return timedelta(days=days) if days and _needs_renewal(owner, open_sink(kind)) else None


def _needs_renewal(owner: int, sink: Sink) -> bool:
    return owner != ADMIN or isinstance(sink, RemoteSink)


def _sink(scope: DeclarationScope, statement: Subscribe) -> Sink:
    """Return the sink of a subscription. Raise StatementError if the actor may not use it."""
    spans = statement.spans
    if not scope.actor.is_admin:
        sink = find_sink(statement.kind)
        if sink is None or not sink.is_for_owners:
            raise StatementError(
                f"output {statement.kind} is for the admin only",
                span=spans.kind,
                hint=f"you may use: {', '.join(sink.kind for sink in installed_sinks() if sink.is_for_owners)}",
            )
    try:
        sink = open_sink(statement.kind)
    except InputError as error:
        raise StatementError(error.message, hint=error.hint, span=spans.kind) from error
    if statement.sheet is not None and not sink.sends_messages:
        raise StatementError(
            f"output {statement.kind} sends no messages, so it cannot apply a stylesheet", span=spans.sheet
        )
    return sink


def _target(scope: DeclarationScope, statement: Subscribe, sink: Sink) -> str | None:
    spans, settings = statement.spans, scope.workspace.settings
    try:
        target = sink.validate_target(statement.target, scope.workspace.folder, settings.out_folders)
        if target is not None and isinstance(sink, RemoteSink) and target.startswith(("http://", "https://")):
            # Only the URL itself is checked here. The HTTP client checks at each attempt to which IP it resolves.
            check_url(target, settings.allowed_addresses)
    except InputError as error:
        raise StatementError(error.message, hint=error.hint, span=spans.target) from error
    except Exception as error:  # a plug-in may raise anything
        raise StatementError(
            f"the output plug-in {sink.kind!r} failed to check the target: {reason_of(error)}",
            hint=f"{type(sink).__qualname__}.validate_target must return the target or raise InputError",
            span=spans.target,
        ) from error
    if target is not None and sink.owns_target:
        holder = scope.target_holder(target)
        if holder is not None:
            raise DuplicateNameError(
                f"subscription {holder} already writes into {target}",
                span=spans.target,
                hint="choose another file, or end that subscription first",
            )
    return target


def _wanted_consent(scope: DeclarationScope, statement: Subscribe, sink: Sink, target: str) -> WantedConsent | None:
    """Return the consent that a subscription needs, or None. Raise StatementError if it cannot be requested."""
    settings, span = scope.workspace.settings, statement.spans.target
    if scope.actor.is_admin or not isinstance(sink, ConfirmingSink):
        return None
    wanted = WantedConsent(
        scope.actor.owner,
        statement.kind,
        target,
        sink.recipient(target),
        settings.confirmation_days * consents.DAY,
        is_exempt(sink, target, settings),
    )
    if consents.has_refused(scope.connection, wanted.kind, sink.refuser(target)):
        raise StatementError(
            f"{target} refused messages from this workspace",
            span=span,
            hint="choose another target, or ask the admin",
        )
    limit = settings.owner_pending_confirmations
    if not scope.want_consent(wanted, limit):
        raise StatementError(
            f"at most {limit} targets of an owner can wait for confirmation",
            span=span,
            hint=f"wait until one confirms or its request expires (after {settings.confirmation_days} days)",
        )
    return wanted


def unsubscribe(scope: DeclarationScope, statement: Unsubscribe) -> Dropped:
    """Apply `unsubscribe …`, by number, by ticket, or all subscriptions of the actor to a feed."""
    numbers = scope.end(_selected(scope, statement))
    return Dropped(f"ended {listed('subscription', numbers)}", numbers)


def _selected(scope: DeclarationScope, statement: Unsubscribe) -> list[Subscription]:
    if statement.ticket is not None:
        return [_by_ticket(scope, statement.ticket, statement.span)]
    if statement.number is not None:
        return [_by_number(scope, statement.number, statement.span)]
    if statement.feed is None:
        raise InvalidConditionError(
            "unsubscribe expects a feed, a subscription number or a ticket", span=statement.span
        )
    feed = scope.find(statement.feed)
    selected = [
        subscription
        for subscription in subscriptions.live_subscriptions(scope.connection, feed.id, owner=scope.actor.owner)
        if not subscription.is_internal
        and statement.kind in (None, subscription.kind)
        and statement.target in (None, subscription.target)
    ]
    if not selected:
        raise UnknownNameError(
            f"you have no such subscription to {feed.name}",
            span=statement.feed.span,
            hint="`show subscriptions` lists your subscriptions",
        )
    return selected


def _by_ticket(scope: DeclarationScope, ticket: str, span: Span) -> Subscription:
    """Return the subscription of a ticket. Anyone with the ticket may use it, so the owner is not checked."""
    subscription = subscriptions.subscription_by_ticket(scope.connection, ticket_digest(ticket))
    if subscription is None:
        raise UnknownNameError(
            "no live subscription has this ticket",
            span=span,
            hint="the ticket may be incomplete, or the subscription may have ended",
        )
    return subscription


def _by_number(scope: DeclarationScope, number: int, span: Span) -> Subscription:
    """Return a subscription by number. Raise StatementError if it is internal."""
    subscription = scope.subscription(number, span)
    if subscription.is_internal:
        names = scope.visible_names([int(subscription.target or 0)])
        raise StatementError(
            f"subscription {number} belongs to the materialized {listed('feed', names)}",
            span=span,
            hint=f"`drop feed {names[0] if names else '…'}` ends it",
        )
    return subscription


def renew(scope: DeclarationScope, statement: Renew) -> Renewed:
    """Apply `renew …`: the subscription lasts for the given or the default lifetime from now on."""
    if statement.ticket is not None:
        subscription = _by_ticket(scope, statement.ticket, statement.span)
    else:
        subscription = _by_number(scope, statement.number or 0, statement.span)
    if subscription.expires is not None and subscription.expires <= moment_of(now(scope.connection)):
        raise StatementError(
            f"subscription {subscription.id} expired on {subscription.expires.date()}",
            span=statement.span,
            hint="subscribe again",
        )
    lifetime = statement.lifetime or default_lifetime(scope.workspace, subscription.owner, subscription.kind)
    expires = subscriptions.renew_subscription(scope.connection, subscription.id, lifetime)
    expires_text = None if expires is None else moment_of(expires).isoformat()
    until = "it is ended" if expires_text is None else expires_text[:16]
    return Renewed(f"subscription {subscription.id} lasts until {until}", subscription.id, expires_text)


def rotate(scope: DeclarationScope, statement: RotateKey) -> SubscriptionDone:
    """Apply `rotate key of subscription 12`."""
    subscription = scope.subscription(statement.subscription, statement.span)
    sink = find_sink(subscription.kind)
    if sink is None or not sink.is_signed:
        signed = [sink.kind for sink in installed_sinks() if sink.is_signed]
        raise StatementError(
            f"messages of subscription {subscription.id} are not signed",
            span=statement.span,
            hint=f"outputs with signing keys: {', '.join(signed)}",
        )
    key = signing_keys.rotate_key(scope.connection, subscription.id)
    hours = int(signing_keys.OVERLAP.total_seconds() // 3600)
    lines = (f"signing key: {key}  (shown only now; messages are also signed with the old key for {hours} hours)",)
    return SubscriptionDone(f"new key of subscription {subscription.id}", subscription.id, key=key, details=lines)


def replay(scope: DeclarationScope, statement: Replay) -> MessagesDone:
    """Apply `replay message 'key'` or `replay subscription 12`."""
    if statement.message is not None:
        owner = subscriptions.owner_of_message(scope.connection, statement.message)
        if owner is None or not (scope.actor.is_admin or owner == scope.actor.owner):
            raise UnknownNameError(
                f"there is no message {statement.message}",
                span=statement.span,
                hint="`show dead letters` lists messages that were given up",
            )
        count = replay_letters(scope.connection, statement.message)
    else:
        subscription = scope.subscription(statement.subscription or 0, statement.span)
        count = replay_letters(scope.connection, subscription.id)
    if not count:
        raise UnknownNameError("there is no dead letter to send again", span=statement.span)
    noun = "message is" if count == 1 else "messages are"
    return MessagesDone(f"{count} {noun} sent again", count)


def send_now(scope: DeclarationScope, statement: SendNow) -> MessagesDone:
    """Apply `send subscription 12 now` or `send all now`.

    The first also enables a disabled subscription, or requests confirmation again if its target has not confirmed.
    """
    if statement.subscription is None:
        owner = None if scope.actor.is_admin else scope.actor.owner
        live = subscriptions.live_subscriptions(scope.connection, owner=owner)
        enabled = [subscription.id for subscription in live if subscription.disabled is None]
        disabled = [subscription.id for subscription in live if subscription.disabled is not None]
        count = ledger.send_now(scope.connection, enabled)
        return MessagesDone(_sent_now(count), count, disabled=disabled)
    subscription = scope.subscription(statement.subscription, statement.span)
    if subscription.paused:
        raise StatementError(
            f"subscription {subscription.id} is paused",
            span=statement.span,
            hint=f"resume it first: `resume subscription {subscription.id};`",
        )
    requested = request_again(scope, subscription, statement.span)
    if requested is not None:
        return requested
    count = _enable(scope, subscription, statement.span)
    return MessagesDone(_sent_now(count), count, subscription.id)


def _sent_now(count: int) -> str:
    if not count:
        return "no message is waiting for a retry"
    return "1 message is sent now" if count == 1 else f"{count:,} messages are sent now"


def _enable(scope: DeclarationScope, subscription: Subscription, span: Span) -> int:
    """Enable a subscription, make its messages due now, and return how many were waiting for a retry."""
    if subscription.disabled == OWNER_DISABLED:
        raise StatementError(
            OWNER_DISABLED, span=span, hint="the admin can enable an owner with `runnel owner disable NAME --undo`"
        )
    if subscription.disabled is None:
        return ledger.send_now(scope.connection, [subscription.id])
    return subscriptions.enable_subscription(scope.connection, subscription.id)


def pause(scope: DeclarationScope, statement: Pause) -> SubscriptionDone:
    """Apply `pause subscription 12` or `resume subscription 12`. Resuming also enables a disabled subscription."""
    verb = "paused" if statement.paused else "resumed"
    subscription = scope.subscription(statement.subscription or 0, statement.span)
    if statement.paused:
        subscriptions.give_own_cursor(scope.connection, subscription)
    elif subscription.disabled is not None:
        _enable(scope, subscription, statement.span)
    subscriptions.pause_subscription(scope.connection, subscription.id, statement.paused)
    return SubscriptionDone(f"{verb} subscription {subscription.id}", subscription.id, paused=statement.paused)
