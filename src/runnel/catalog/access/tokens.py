"""Tokens and tickets: secrets that are shown once and kept only as digests.

A token stands for an owner. It is checked with argon2, which is slow on purpose; a token that was right is therefore
remembered in this process for some minutes, by a keyed digest, while its row (revoked? owner disabled?) is looked at
every time. A ticket stands for one subscription; it is 32 random bytes, so a plain digest of it gives nothing away.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import ARGON2_VERSION
from sqlalchemy import Connection, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.errors import InputError, NotAllowedError, NotFoundError

_PREFIX = "runnel_"
_FORM = re.compile(_PREFIX + r"(\d{1,18})_([A-Za-z0-9_-]{20,200})\Z", re.ASCII)
_REMEMBERED_MICROSECONDS = 600 * 1_000_000
_MOST_REMEMBERED = 10_000
_LONGEST_LABEL = 80
_t, _o = schema.tokens.c, schema.owners.c
_hasher = PasswordHasher()
_process_key = secrets.token_bytes(32)
_HASH_OF_NOTHING = (
    f"$argon2id$v={ARGON2_VERSION}$m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}"
    f"${b64encode(secrets.token_bytes(_hasher.salt_len)).decode().rstrip('=')}"
    f"${b64encode(secrets.token_bytes(_hasher.hash_len)).decode().rstrip('=')}"
)
"""The secrets of unknown tokens are compared with this hash, which no secret has, so that an unknown number costs as
much as a known one: one computation. It is not computed itself: the first unknown number would then cost two.
"""
_right: dict[bytes, tuple[str, int]] = {}
"""Keyed digests of tokens that were right, each with the hash that it was held against, and until when."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is listed: whose, what for, and when; never the secret."""

    id: int
    owner: int
    label: str
    created: int
    used: int | None
    revoked: int | None


def new_token(connection: Connection, owner: int, label: str) -> tuple[Token, str]:
    """Make a token for an owner; gives also its text, which is kept nowhere."""
    if not label.strip() or len(label) > _LONGEST_LABEL or not label.isprintable():
        raise InputError(
            f"a token's label must have 1 to {_LONGEST_LABEL} printable characters", place=repr(label[:80])
        )
    secret = secrets.token_urlsafe(32)
    result = connection.execute(
        insert(schema.tokens)
        .values(owner=owner, label=label, hash=_hasher.hash(secret), created=now(connection))
        .returning(schema.tokens)
    )
    made = _token(result.one())
    return made, f"{_PREFIX}{made.id}_{secret}"


def tokens_of(connection: Connection, owner: int | None = None) -> list[Token]:
    """The tokens of an owner, or of all, revoked ones too."""
    query = select(schema.tokens).order_by(_t.id)
    if owner is not None:
        query = query.where(_t.owner == owner)
    return [_token(row) for row in connection.execute(query)]


def revoke_token(connection: Connection, token: int) -> Token:
    """Let a token be of no use any more, from this moment on."""
    row = connection.execute(select(schema.tokens).where(_t.id == token)).one_or_none()
    if row is None:
        raise NotFoundError(f"no token has the number {token}", hint="`runnel token list` lists all tokens")
    connection.execute(
        update(schema.tokens).where(_t.id == token, _t.revoked.is_(None)).values(revoked=now(connection))
    )
    return _token(row)


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Whose token it was. `fresh` says that it was not remembered, so its use is worth writing down."""

    token: int
    owner: int
    fresh: bool


def verify_token(connection: Connection, token: str) -> VerifiedToken:
    """Whose token this is, or NotAllowed: the same words, and for what looks like a token the same work, always."""
    form = _FORM.match(token)
    if form is None:
        raise _refusal()
    query = select(schema.tokens, _o.disabled.label("owner_disabled")).join(schema.owners, _o.id == _t.owner)
    row = connection.execute(query.where(_t.id == int(form[1]))).one_or_none()
    kept = row.hash if row is not None else _HASH_OF_NOTHING
    fresh = not _is_remembered(token, kept, now(connection))
    right = not fresh or _holds(kept, form[2])
    if row is None or not right or row.revoked is not None or row.owner_disabled is not None:
        raise _refusal()
    if fresh:
        _remember(token, kept, now(connection))
    return VerifiedToken(row.id, row.owner, fresh)


def check_token(connection: Connection, token: int) -> None:
    """Raise NotAllowed if a token that was right once was revoked since, or its owner disabled."""
    query = select(_t.id).join(schema.owners, _o.id == _t.owner)
    query = query.where(_t.id == token, _t.revoked.is_(None), _o.disabled.is_(None))
    if connection.execute(query).one_or_none() is None:
        raise _refusal()


def _refusal() -> NotAllowedError:
    return NotAllowedError("this token is not valid", hint="ask the admin for a new token")


def note_use(connection: Connection, token: int) -> None:
    """Write down that a token was used just now."""
    connection.execute(update(schema.tokens).where(_t.id == token).values(used=now(connection)))


def new_ticket() -> tuple[str, bytes]:
    """A ticket, and its digest to keep.

    >>> ticket, digest = new_ticket()
    >>> len(ticket), ticket_digest(ticket) == digest
    (43, True)
    """
    ticket = secrets.token_urlsafe(32)
    return ticket, ticket_digest(ticket)


def ticket_digest(ticket: str) -> bytes:
    """The digest under which a ticket is kept."""
    return blake2b(ticket.encode("utf-8", "surrogatepass"), digest_size=32, person=b"runnel ticket").digest()


def _holds(kept: str, secret: str) -> bool:
    try:
        return _hasher.verify(kept, secret)
    except (VerificationError, InvalidHashError):
        return False


def _digest(token: str) -> bytes:
    return blake2b(token.encode("utf-8", "surrogatepass"), key=_process_key, digest_size=32).digest()


def _is_remembered(token: str, kept: str, at: int) -> bool:
    found = _right.get(_digest(token))
    return found is not None and found[0] == kept and at - _REMEMBERED_MICROSECONDS <= found[1] <= at


def _remember(token: str, kept: str, at: int) -> None:
    if len(_right) >= _MOST_REMEMBERED:
        _right.clear()
    _right[_digest(token)] = (kept, at)


def _token(row: Any) -> Token:
    return Token(row.id, row.owner, row.label, row.created, row.used, row.revoked)
