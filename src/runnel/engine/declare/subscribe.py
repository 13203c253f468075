"""Subscriptions declared, renewed and ended, in one open transaction."""

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
from runnel.delivery.dead_letters import replay as open_again
from runnel.delivery.settle_attempts import reason_of
from runnel.engine.answers import Dropped, MessagesDone, Renewed, Subscribed, SubscriptionDone, listed
from runnel.engine.declare.confirm_targets import ask_again
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
    """`subscribe to Feed …`: only the answer holds the ticket, and the signing key if messages are signed."""
    feed = scope.find(statement.feed)
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
            # It gets what the others have had already, or gets it later than they do.
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
        shows_ticket=_reaches_people(scope.actor.owner, sink),
        key=None if key is None else signing_keys.key_text(key),
        is_waiting=consent is not None and not scope.is_confirmed(consent),
    )


def default_lifetime(workspace: Workspace, owner: int, kind: str) -> timedelta | None:
    """How long a subscription without `for` lasts. Local outputs of the admin last until they are ended."""
    days = workspace.settings.subscription_days
    return timedelta(days=days) if days and _reaches_people(owner, open_sink(kind)) else None


def _reaches_people(owner: int, sink: Sink) -> bool:
    return owner != ADMIN or isinstance(sink, RemoteSink)


def _sink(scope: DeclarationScope, statement: Subscribe) -> Sink:
    """The sink of a subscription, if the actor may use it."""
    spans = statement.spans
    if not scope.actor.is_admin:
        sink = find_sink(statement.kind)
        if sink is None or not sink.is_for_owners:
            raise StatementError(
                f"output {statement.kind} is for the admin only",
                span=spans.kind,
                hint=f"you may use: {', '.join(one.kind for one in installed_sinks() if one.is_for_owners)}",
            )
    try:
        sink = open_sink(statement.kind)
    except InputError as error:
        raise StatementError(error.message, hint=error.hint, span=spans.kind) from error
    if statement.sheet is not None and not sink.sends_messages:
        raise StatementError(f"output {statement.kind} sends no messages to apply a stylesheet to", span=spans.sheet)
    return sink


def _target(scope: DeclarationScope, statement: Subscribe, sink: Sink) -> str | None:
    spans, settings = statement.spans, scope.workspace.settings
    try:
        target = sink.validate_target(statement.target, scope.workspace.folder, settings.out_folders)
        if target is not None and isinstance(sink, RemoteSink) and target.startswith(("http://", "https://")):
            # An address stays what it is. The HTTP client checks at each attempt where a name leads.
            check_url(target, settings.allowed_addresses)
    except InputError as error:
        raise StatementError(error.message, hint=error.hint, span=spans.target) from error
    except Exception as error:  # a plug-in may raise anything
        raise StatementError(
            f"the output {sink.kind!r} could not check the target: {reason_of(error)}",
            hint=f"{type(sink).__qualname__}.validate_target must return the target or raise InputError",
            span=spans.target,
        ) from error
    if target is not None and sink.owns_target:
        taken = scope.target_holder(target)
        if taken is not None:
            raise DuplicateNameError(
                f"subscription {taken} writes into {target} already",
                span=spans.target,
                hint="choose another file, or end that subscription first",
            )
    return target


def _wanted_consent(scope: DeclarationScope, statement: Subscribe, sink: Sink, target: str) -> WantedConsent | None:
    """The consent that an owner's subscription needs; refused where it cannot be asked for."""
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
            f"at most {limit} targets of an owner may wait for confirmation",
            span=span,
            hint=f"wait until one confirms or its request expires (after {settings.confirmation_days} days)",
        )
    return wanted


def unsubscribe(scope: DeclarationScope, statement: Unsubscribe) -> Dropped:
    """`unsubscribe …`, by number, by ticket, or all of one's own to a feed."""
    numbers = scope.end(_matching(scope, statement))
    return Dropped(f"ended {listed('subscription', numbers)}", numbers)


def _matching(scope: DeclarationScope, statement: Unsubscribe) -> list[Subscription]:
    if statement.ticket is not None:
        return [_by_ticket(scope, statement.ticket, statement.span)]
    if statement.number is not None:
        return [_made_by_somebody(scope, statement.number, statement.span)]
    if statement.feed is None:
        raise InvalidConditionError("unsubscribe from what?", span=statement.span)
    feed = scope.find(statement.feed)
    found = [
        one
        for one in subscriptions.live_subscriptions(scope.connection, feed.id, owner=scope.actor.owner)
        if not one.is_internal and statement.kind in (None, one.kind) and statement.target in (None, one.target)
    ]
    if not found:
        raise UnknownNameError(
            f"there is no such subscription to {feed.name}",
            span=statement.feed.span,
            hint="`show subscriptions` lists them",
        )
    return found


def _by_ticket(scope: DeclarationScope, ticket: str, span: Span) -> Subscription:
    """Whoever has the ticket may; nothing is said of whose subscription it is."""
    found = subscriptions.subscription_by_ticket(scope.connection, ticket_digest(ticket))
    if found is None:
        raise UnknownNameError(
            "no subscription has this ticket",
            span=span,
            hint="it was not copied whole, or the subscription has ended",
        )
    return found


def _made_by_somebody(scope: DeclarationScope, number: int, span: Span) -> Subscription:
    found = scope.subscription(number, span)
    if found.is_internal:
        names = scope.shown([int(found.target or 0)])
        raise StatementError(
            f"subscription {number} serves {listed('feed', names)}",
            span=span,
            hint=f"`drop feed {names[0] if names else '…'}` ends it",
        )
    return found


def renew(scope: DeclarationScope, statement: Renew) -> Renewed:
    """`renew …`: the subscription lasts for as long as is said, or as a new one would, from now on."""
    if statement.ticket is not None:
        found = _by_ticket(scope, statement.ticket, statement.span)
    else:
        found = _made_by_somebody(scope, statement.number or 0, statement.span)
    if found.expires is not None and found.expires <= moment_of(now(scope.connection)):
        raise StatementError(
            f"subscription {found.id} ended on {found.expires.date()}", span=statement.span, hint="subscribe again"
        )
    lifetime = statement.lifetime or default_lifetime(scope.workspace, found.owner, found.kind)
    expires = subscriptions.renew_subscription(scope.connection, found.id, lifetime)
    shown = None if expires is None else moment_of(expires).isoformat()
    until = "it is ended" if shown is None else shown[:16]
    return Renewed(f"subscription {found.id} lasts until {until}", found.id, shown)


def rotate(scope: DeclarationScope, statement: RotateKey) -> SubscriptionDone:
    """`rotate key of subscription 12`."""
    found = scope.subscription(statement.subscription, statement.span)
    sink = find_sink(found.kind)
    if sink is None or not sink.is_signed:
        signed = [one.kind for one in installed_sinks() if one.is_signed]
        raise StatementError(
            f"messages of subscription {found.id} are not signed",
            span=statement.span,
            hint=f"outputs with signing keys: {', '.join(signed)}",
        )
    key = signing_keys.rotate_key(scope.connection, found.id)
    hours = int(signing_keys.OVERLAP.total_seconds() // 3600)
    lines = (f"signing key: {key}  (shown only now; the old one signs as well for {hours} hours)",)
    return SubscriptionDone(f"new key of subscription {found.id}", found.id, key=key, details=lines)


def replay(scope: DeclarationScope, statement: Replay) -> MessagesDone:
    """`replay message 'key'` or `replay subscription 12`."""
    if statement.message is not None:
        owner = subscriptions.owner_of_message(scope.connection, statement.message)
        if owner is None or not (scope.actor.is_admin or owner == scope.actor.owner):
            raise UnknownNameError(
                f"there is no message {statement.message}", span=statement.span, hint="`show dead letters` lists them"
            )
        count = open_again(scope.connection, statement.message)
    else:
        found = scope.subscription(statement.subscription or 0, statement.span)
        count = open_again(scope.connection, found.id)
    if not count:
        raise UnknownNameError("there is no dead letter to send again", span=statement.span)
    noun = "message is" if count == 1 else "messages are"
    return MessagesDone(f"{count} {noun} sent again", count)


def send_now(scope: DeclarationScope, statement: SendNow) -> MessagesDone:
    """`send subscription 12 now` also resumes a disabled subscription, or asks its target to confirm once more.

    `send all now` does neither.
    """
    if statement.subscription is None:
        owner = None if scope.actor.is_admin else scope.actor.owner
        held = subscriptions.live_subscriptions(scope.connection, owner=owner)
        count = ledger.send_now(scope.connection, [one.id for one in held if one.disabled is None])
        return MessagesDone(_sent_now(count), count, disabled=[one.id for one in held if one.disabled is not None])
    found = scope.subscription(statement.subscription, statement.span)
    if found.paused:
        raise StatementError(
            f"subscription {found.id} is paused",
            span=statement.span,
            hint=f"resume it first: `resume subscription {found.id};`",
        )
    asked = ask_again(scope, found, statement.span)
    if asked is not None:
        return asked
    count = _enable(scope, found, statement.span)
    return MessagesDone(_sent_now(count), count, found.id)


def _sent_now(count: int) -> str:
    if not count:
        return "no message waits for another attempt"
    return "1 message is sent now" if count == 1 else f"{count:,} messages are sent now"


def _enable(scope: DeclarationScope, found: Subscription, span: Span) -> int:
    """Enable a subscription and make its messages due now; returns how many waited for another attempt."""
    if found.disabled == OWNER_DISABLED:
        raise StatementError(
            OWNER_DISABLED, span=span, hint="the admin enables an owner with `runnel owner disable NAME --undo`"
        )
    if found.disabled is None:
        return ledger.send_now(scope.connection, [found.id])
    return subscriptions.enable_subscription(scope.connection, found.id)


def pause(scope: DeclarationScope, statement: Pause) -> SubscriptionDone:
    """`pause subscription 12` and `resume subscription 12`; resuming also takes back that it was disabled."""
    verb = "paused" if statement.paused else "resumed"
    found = scope.subscription(statement.subscription or 0, statement.span)
    if statement.paused:
        subscriptions.keep_place(scope.connection, found)
    elif found.disabled is not None:
        _enable(scope, found, statement.span)
    subscriptions.pause_subscription(scope.connection, found.id, statement.paused)
    return SubscriptionDone(f"{verb} subscription {found.id}", found.id, paused=statement.paused)
