"""Consents in the catalog: which targets have agreed to the messages of which owners.

An owner's subscription waits until its target has confirmed. A consent applies to one owner and one exact target.
Limits are counted per recipient: all spellings of an address have the same recipient. A refusal applies to a refuser,
which is narrower: only spellings that certainly belong to the same mailbox. It is a row of owner 0, which represents
all owners, with the refuser as its target.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b32encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.consent import Consent, ConsentState
from runnel.model.feed import ADMIN
from runnel.model.subscription import Subscription

CONFIRMATION = "confirmation"
"""The name of the secret from which challenges are derived."""

EXEMPT = "the domain is in confirmed_domains"
"""The outcome of a consent that the setting `confirmed_domains` makes unnecessary."""

EVERYBODY = 0
"""The owner of the rows of recipients that refused permanently."""

DAY = 86_400_000_000
_CHALLENGE_BYTES = 15
_GROUP = 4
_MAX_CODE_LENGTH = 64
_MAX_OUTCOME_LENGTH = 2_000
_k, _s = schema.consents.c, schema.subscriptions.c
# A literal, not a parameter: databases do not use a partial index if its condition is compared with a parameter.
_UNCONFIRMED = _k.state != literal_column(f"'{ConsentState.CONFIRMED.value}'")
_PENDING = _k.state == literal_column(f"'{ConsentState.PENDING.value}'")

Key = tuple[int, str, str]
"""Owner, kind of sink, and target."""


@dataclass(frozen=True, slots=True)
class WantedConsent:
    """A target that must confirm within `lifetime` microseconds, unless it `is_exempt`."""

    owner: int
    kind: str
    target: str
    recipient: str
    lifetime: int
    is_exempt: bool = False

    @property
    def key(self) -> Key:
        """The key of the consent."""
        return self.owner, self.kind, self.target


def is_unconfirmed() -> ColumnElement[bool]:
    """Return the SQL condition on a row of `subscriptions` that its target must confirm and has not."""
    asked = (
        exists()
        .where(
            _k.owner == _s.owner,
            _k.kind == _s.kind,
            _k.target == _s.target,
            _UNCONFIRMED,
        )
        .correlate(schema.subscriptions)
    )
    return and_(_s.owner != literal_column(str(ADMIN)), asked)


# --- challenges ----------------------------------------------------------------------------------------------------


def challenge_of(secret: bytes, consent: Consent) -> str:
    """Return the challenge of a consent, in groups of letters and digits. It is not stored in the catalog.

    It is the same for every request until the consent gets another nonce, so a mail that is sent twice contains the
    same link. Only the secret of the workspace can compute it.
    """
    text = f"confirm {consent.id} {consent.owner} {consent.kind} {(consent.nonce or b'').hex()} {consent.target}"
    digest = hmac.new(secret, text.encode(), sha256).digest()
    letters = b32encode(digest[:_CHALLENGE_BYTES]).decode("ascii")
    return "-".join(letters[start : start + _GROUP] for start in range(0, len(letters), _GROUP))


def is_challenge(secret: bytes, consent: Consent, code: str) -> bool:
    """Return whether a code is the challenge of a consent, ignoring case, spaces and hyphens."""
    if consent.nonce is None or len(code) > _MAX_CODE_LENGTH:
        return False
    plain = "".join(character for character in code.upper() if character not in " -")
    expected = challenge_of(secret, consent).replace("-", "")
    return hmac.compare_digest(expected.encode(), plain.encode("utf-8", "replace"))


def consent_token(secret: bytes, consent: Consent) -> str:
    """Return the token of a link with which a recipient confirms or refuses."""
    return f"{consent.id}.{challenge_of(secret, consent)}"


def consent_by_token(connection: Connection, secret: bytes | None, token: str) -> Consent | None:
    """Return the consent of a link, or None if the token was not created for its current nonce."""
    number, _, mark = token.partition(".")
    if (
        secret is None
        or len(token) > _MAX_CODE_LENGTH
        or not (number.isascii() and number.isdigit() and len(number) < 18)
    ):
        return None
    row = connection.execute(select(schema.consents).where(_k.id == int(number))).one_or_none()
    if row is None:
        return None
    consent = _consent(row)
    return consent if is_challenge(secret, consent, mark) else None


# --- looking -------------------------------------------------------------------------------------------------------


def consent_of(connection: Connection, owner: int, kind: str, target: str) -> Consent | None:
    """Return the consent of a target to the messages of an owner, or None if it was never needed."""
    query = select(schema.consents).where(_k.owner == owner, _k.kind == kind, _k.target == target)
    row = connection.execute(query).one_or_none()
    return None if row is None else _consent(row)


def consents_by_key(connection: Connection, owner: int | None = None) -> dict[Key, Consent]:
    """Return all consents, or those of one owner."""
    query = select(schema.consents)
    if owner is not None:
        query = query.where(_k.owner == owner)
    return {(row.owner, row.kind, row.target): _consent(row) for row in connection.execute(query)}


def unconfirmed_among(connection: Connection, subscriptions: Sequence[int]) -> set[int]:
    """Return the subscriptions that wait for their targets to confirm."""
    query = select(_s.id).where(is_unconfirmed())
    return {row.id for chunk in chunks(subscriptions) for row in connection.execute(query.where(_s.id.in_(chunk)))}


def unconfirmed_subscriptions(connection: Connection, limit: int) -> list[tuple[int, str]]:
    """Return live subscriptions that wait for their targets to confirm, each with a description of the state."""
    query = _waiting(select(_s.id.label("subscription"), schema.consents)).order_by(_s.id).limit(limit)
    moment = now(connection)
    return [(row.subscription, describe_consent(_consent(row), moment)) for row in connection.execute(query)]


def unconfirmed_count(connection: Connection) -> int:
    """Count the live subscriptions that wait for their targets to confirm."""
    return int(connection.execute(_waiting(select(func.count()))).scalar_one())


def _waiting(query: Select[Any]) -> Select[Any]:
    """Return a query over the unconfirmed consents and their live subscriptions."""
    return (
        query.select_from(schema.consents)
        .join(schema.subscriptions, and_(_s.owner == _k.owner, _s.kind == _k.kind, _s.target == _k.target))
        .where(_UNCONFIRMED, _s.ended.is_(None))
    )


def describe_consent(consent: Consent, moment: int) -> str:
    """Describe the state of a consent at a time."""
    because = f" ({consent.outcome})" if consent.outcome else ""
    if consent.state is ConsentState.REFUSED:
        return f"refused{because}"
    if consent.state is ConsentState.CONFIRMED:
        return f"confirmed{because}"
    if consent.not_before is not None:
        return (
            f"waiting for confirmation{because}"
            if consent.requests
            else f"confirmation request not sent yet{because}"
        )
    if consent.expires <= moment:
        return f"confirmation request expired{because}"
    return f"waiting for confirmation{because}"


def has_refused(connection: Connection, kind: str, refuser: str) -> bool:
    """Return whether a recipient permanently refused the messages of all owners."""
    return consent_of(connection, EVERYBODY, kind, refuser) is not None


def pending_count(connection: Connection, owner: int) -> int:
    """Count the targets of an owner that may still answer a request, even without a live subscription."""
    query = select(func.count()).select_from(schema.consents)
    query = query.where(_k.owner == owner, _PENDING, _k.expires > now(connection))
    return int(connection.execute(query).scalar_one())


def due_consents(connection: Connection, limit: int) -> list[tuple[Consent, int]]:
    """Return consents for which a request is due, each with a waiting subscription, longest due first."""
    served = and_(
        _s.owner == _k.owner,
        _s.kind == _k.kind,
        _s.target == _k.target,
        _s.ended.is_(None),
        _s.paused == 0,
        _s.disabled.is_(None),
    )
    first = select(func.min(_s.id)).where(served).correlate(schema.consents).scalar_subquery()
    query = (
        select(schema.consents, first.label("subscription"))
        .where(_PENDING, _k.not_before <= now(connection), exists().where(served))
        .order_by(_k.not_before, _k.id)
        .limit(limit)
    )
    return [(_consent(row), int(row.subscription)) for row in connection.execute(query)]


def pending_consents(connection: Connection) -> list[Consent]:
    """Return all consents that were not answered yet."""
    return [_consent(row) for row in connection.execute(select(schema.consents).where(_PENDING))]


def requests_today(connection: Connection, kind: str, recipient: str) -> dict[int, int]:
    """Count the requests that were sent to a recipient today, by owner."""
    query = select(_k.owner, func.sum(_k.day_requests).label("requests")).group_by(_k.owner)
    query = query.where(_k.kind == kind, _k.recipient == recipient, _k.day == now(connection) // DAY)
    return {row.owner: int(row.requests) for row in connection.execute(query)}


def unanswered_requests(connection: Connection, owner: int, kind: str, recipient: str) -> int:
    """Count the unanswered requests that were sent to a recipient for one owner."""
    query = select(func.coalesce(func.sum(_k.requests), 0))
    query = query.where(_k.owner == owner, _k.kind == kind, _k.recipient == recipient)
    return int(connection.execute(query.where(_k.state != ConsentState.CONFIRMED.value)).scalar_one())


# --- changing ------------------------------------------------------------------------------------------------------


def want_consents(connection: Connection, wanted: Iterable[WantedConsent]) -> set[Key]:
    """Schedule requests to targets that were not asked yet or did not answer in time. Return the unconfirmed
    consents.
    """
    unconfirmed: set[Key] = set()
    for consent in {candidate.key: candidate for candidate in wanted}.values():
        existing = consent_of(connection, *consent.key)
        if existing is None:
            connection.execute(insert(schema.consents).values(_new_row(consent, now(connection))))
        elif existing.state is ConsentState.PENDING and consent.is_exempt:
            confirm_consent(connection, existing, EXEMPT)
        elif (
            existing.state is ConsentState.PENDING
            and existing.not_before is None
            and existing.expires <= now(connection)
        ):
            ask_again(connection, existing, consent.lifetime)
        if not consent.is_exempt and (existing is None or not existing.is_confirmed):
            unconfirmed.add(consent.key)
    return unconfirmed


def _new_row(wanted: WantedConsent, moment: int) -> dict[str, Any]:
    return {
        "owner": wanted.owner,
        "kind": wanted.kind,
        "target": wanted.target,
        "recipient": wanted.recipient,
        "state": (ConsentState.CONFIRMED if wanted.is_exempt else ConsentState.PENDING).value,
        "requests": 0,
        "day": 0,
        "day_requests": 0,
        "attempts": 0,
        "not_before": None if wanted.is_exempt else moment,
        "expires": moment + wanted.lifetime,
        "changed": moment,
        "outcome": EXEMPT if wanted.is_exempt else None,
    }


def ask_again(connection: Connection, consent: Consent, lifetime: int) -> None:
    """Schedule a request for now, regardless of the outcome of earlier ones, which still count against limits.

    An expired request stays expired: the next one has another challenge.
    """
    moment = now(connection)
    values: dict[str, Any] = {"not_before": moment, "attempts": 0, "expires": moment + lifetime}
    _change(connection, consent, values | ({"nonce": None} if consent.expires <= moment else {}))


def begin_request(connection: Connection, consent: Consent, *, retry: int, lifetime: int) -> Consent:
    """Count a request before it is sent, so that a crash cannot send more than allowed. Return the consent.

    Unless another outcome is recorded, the request is sent again at `retry`. Its link is valid for `lifetime`.
    """
    moment = now(connection)
    today = moment // DAY
    is_new = consent.nonce is None or consent.expires <= moment
    values = {
        "nonce": secrets.token_bytes(16) if is_new else consent.nonce,
        "requests": _k.requests + 1,
        "day_requests": case((_k.day == today, _k.day_requests), else_=0) + 1,
        "day": today,
        "attempts": _k.attempts + 1,
        "not_before": retry,
        "expires": moment + lifetime,
    }
    _change(connection, consent, values)
    row = connection.execute(select(schema.consents).where(_k.id == consent.id)).one()
    return _consent(row)


def end_request(
    connection: Connection, consent: Consent, outcome: str, not_before: int | None, *, reached: bool
) -> None:
    """Record the outcome of a request, and when the next one is due. A request that reached nobody is not counted."""
    values: dict[str, Any] = {"outcome": outcome[:_MAX_OUTCOME_LENGTH], "not_before": not_before}
    if not reached:
        values |= {"requests": _k.requests - 1, "day_requests": _k.day_requests - 1}
    _change(connection, consent, values)


def confirm_consent(connection: Connection, consent: Consent, outcome: str) -> bool:
    """Allow messages, unless the recipient refused in the meantime. Return whether they are allowed."""
    # Reset the count: if the recipient unsubscribes later, answered requests do not count as unanswered.
    values = {
        "state": ConsentState.CONFIRMED.value,
        "not_before": None,
        "outcome": outcome,
        "attempts": 0,
        "requests": 0,
    }
    confirming = update(schema.consents).where(_k.id == consent.id, _k.state != ConsentState.REFUSED.value)
    return connection.execute(confirming.values(**values, changed=now(connection))).rowcount == 1


def withdraw_consent(connection: Connection, consent: Consent, outcome: str) -> None:
    """Withdraw a confirmation. The target must confirm again, and is asked at the next subscription."""
    moment = now(connection)
    values = {"state": ConsentState.PENDING.value, "nonce": None, "not_before": None, "expires": moment}
    connection.execute(
        update(schema.consents).where(_k.id == consent.id).values(**values, outcome=outcome, changed=moment)
    )


def refuse_permanently(
    connection: Connection, consent: Consent, refuser_of: Callable[[str], str], outcome: str
) -> None:
    """Refuse all messages of all owners to all targets of a refuser."""
    moment = now(connection)
    values: dict[str, Any] = {
        "state": ConsentState.REFUSED.value,
        "not_before": None,
        "outcome": outcome,
        "changed": moment,
    }
    for affected in _of_same_refuser(connection, consent, refuser_of):
        connection.execute(update(schema.consents).where(_k.id == affected.id).values(**values))
    refuser = refuser_of(consent.target)
    if not has_refused(connection, consent.kind, refuser):
        row = WantedConsent(EVERYBODY, consent.kind, refuser, consent.recipient, 0)
        connection.execute(insert(schema.consents).values(_new_row(row, moment) | values))


def forget_refusal(connection: Connection, consent: Consent, refuser_of: Callable[[str], str]) -> set[Key]:
    """Delete a refusal, which only the admin may do. Return the consents that are pending now."""
    refusal = (_k.owner == EVERYBODY, _k.kind == consent.kind, _k.target == refuser_of(consent.target))
    connection.execute(delete(schema.consents).where(*refusal))
    refused = [
        affected
        for affected in _of_same_refuser(connection, consent, refuser_of)
        if affected.state is ConsentState.REFUSED
    ]
    values = {"state": ConsentState.PENDING.value, "nonce": None, "expires": now(connection), "outcome": None}
    for affected in refused:
        connection.execute(update(schema.consents).where(_k.id == affected.id).values(**values))
    return {(affected.owner, affected.kind, affected.target) for affected in refused}


def _of_same_refuser(connection: Connection, consent: Consent, refuser_of: Callable[[str], str]) -> list[Consent]:
    """Return the consents of all owners to which a refusal by the target of a consent applies."""
    query = select(schema.consents).where(_k.kind == consent.kind, _k.recipient == consent.recipient)
    consents = [_consent(row) for row in connection.execute(query.where(_k.owner != EVERYBODY))]
    return [candidate for candidate in consents if refuser_of(candidate.target) == refuser_of(consent.target)]


def _change(connection: Connection, consent: Consent, values: Mapping[str, Any]) -> None:
    """Change a consent that is still pending. A concurrent answer is not overwritten."""
    connection.execute(update(schema.consents).where(_k.id == consent.id, _PENDING).values(**values))


def key_of(subscription: Subscription) -> Key:
    """Return the key of the consent on which a subscription depends."""
    return subscription.owner, subscription.kind, subscription.target or ""


def _consent(row: Any) -> Consent:
    return Consent(
        id=row.id,
        owner=row.owner,
        kind=row.kind,
        target=row.target,
        recipient=row.recipient,
        state=ConsentState(row.state),
        nonce=None if row.nonce is None else bytes(row.nonce),
        requests=row.requests,
        attempts=row.attempts,
        not_before=row.not_before,
        expires=row.expires,
        outcome=row.outcome,
    )
