"""Tokens and tickets: secrets that are shown once and stored only as digests.

A token identifies an owner. It is checked with argon2, which is slow on purpose. A valid token is therefore cached in
this process for some minutes, by a keyed digest, while its row (revoked? owner disabled?) is read every time. A
ticket identifies one subscription. It consists of 32 random bytes, so a plain digest of it reveals nothing.
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
_MAX_REMEMBERED = 10_000
_MAX_LABEL_LENGTH = 80
_t, _o = schema.tokens.c, schema.owners.c
_hasher = PasswordHasher()
_process_key = secrets.token_bytes(32)
_HASH_OF_NOTHING = (
    f"$argon2id$v={ARGON2_VERSION}$m={_hasher.memory_cost},t={_hasher.time_cost},p={_hasher.parallelism}"
    f"${b64encode(secrets.token_bytes(_hasher.salt_len)).decode().rstrip('=')}"
    f"${b64encode(secrets.token_bytes(_hasher.hash_len)).decode().rstrip('=')}"
)
"""A hash that no secret has, with which the secrets of unknown tokens are compared.

An unknown number thus costs as much as a known one: one computation. The hash is a constant, because computing it
would make the first unknown number cost two.
"""
_valid: dict[bytes, tuple[str, int]] = {}
"""Keyed digests of valid tokens, each with the hash it was verified with and its expiry."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token in a listing: owner, label and times, without the secret."""

    id: int
    owner: int
    label: str
    created: int
    used: int | None
    revoked: int | None


def new_token(connection: Connection, owner: int, label: str) -> tuple[Token, str]:
    """Create a token for an owner. Return also its text, which is not stored."""
    if not label.strip() or len(label) > _MAX_LABEL_LENGTH or not label.isprintable():
        raise InputError(
            f"a token's label must have 1 to {_MAX_LABEL_LENGTH} printable characters", place=repr(label[:80])
        )
    secret = secrets.token_urlsafe(32)
    result = connection.execute(
        insert(schema.tokens)
        .values(owner=owner, label=label, hash=_hasher.hash(secret), created=now(connection))
        .returning(schema.tokens)
    )
    created = _token(result.one())
    return created, f"{_PREFIX}{created.id}_{secret}"


def tokens_of(connection: Connection, owner: int | None = None) -> list[Token]:
    """Return the tokens of an owner, or of all owners, including revoked ones."""
    query = select(schema.tokens).order_by(_t.id)
    if owner is not None:
        query = query.where(_t.owner == owner)
    return [_token(row) for row in connection.execute(query)]


def revoke_token(connection: Connection, token: int) -> Token:
    """Revoke a token immediately."""
    row = connection.execute(select(schema.tokens).where(_t.id == token)).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no token {token}", hint="`runnel token list` lists all tokens")
    connection.execute(
        update(schema.tokens).where(_t.id == token, _t.revoked.is_(None)).values(revoked=now(connection))
    )
    return _token(row)


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The owner of a verified token. `fresh` means that it was not cached, so its use should be recorded."""

    token: int
    owner: int
    fresh: bool


def verify_token(connection: Connection, token: str) -> VerifiedToken:
    """Return the owner of a token, or raise NotAllowedError.

    The message is always the same, and so is the work for everything that has the form of a token.
    """
    form = _FORM.match(token)
    if form is None:
        raise _refusal()
    query = select(schema.tokens, _o.disabled.label("owner_disabled")).join(schema.owners, _o.id == _t.owner)
    row = connection.execute(query.where(_t.id == int(form[1]))).one_or_none()
    stored_hash = row.hash if row is not None else _HASH_OF_NOTHING
    fresh = not _is_remembered(token, stored_hash, now(connection))
    is_right = not fresh or _holds(stored_hash, form[2])
    if row is None or not is_right or row.revoked is not None or row.owner_disabled is not None:
        raise _refusal()
    if fresh:
        _remember(token, stored_hash, now(connection))
    return VerifiedToken(row.id, row.owner, fresh)


def check_token(connection: Connection, token: int) -> None:
    """Raise NotAllowedError if a token that was valid has been revoked or its owner has been disabled."""
    query = select(_t.id).join(schema.owners, _o.id == _t.owner)
    query = query.where(_t.id == token, _t.revoked.is_(None), _o.disabled.is_(None))
    if connection.execute(query).one_or_none() is None:
        raise _refusal()


def _refusal() -> NotAllowedError:
    return NotAllowedError("this token is not valid", hint="ask the admin for a new token")


def note_use(connection: Connection, token: int) -> None:
    """Record that a token was used now."""
    connection.execute(update(schema.tokens).where(_t.id == token).values(used=now(connection)))


def new_ticket() -> tuple[str, bytes]:
    """Create a ticket. Return it with its digest, which is stored.

    >>> ticket, digest = new_ticket()
    >>> len(ticket), ticket_digest(ticket) == digest
    (43, True)
    """
    ticket = secrets.token_urlsafe(32)
    return ticket, ticket_digest(ticket)


def ticket_digest(ticket: str) -> bytes:
    """Return the digest under which a ticket is stored."""
    return blake2b(ticket.encode("utf-8", "surrogatepass"), digest_size=32, person=b"runnel ticket").digest()


def _holds(stored_hash: str, secret: str) -> bool:
    try:
        return _hasher.verify(stored_hash, secret)
    except (VerificationError, InvalidHashError):
        return False


def _digest(token: str) -> bytes:
    return blake2b(token.encode("utf-8", "surrogatepass"), key=_process_key, digest_size=32).digest()


def _is_remembered(token: str, stored_hash: str, moment: int) -> bool:
    remembered = _valid.get(_digest(token))
    return (
        remembered is not None
        and remembered[0] == stored_hash
        and moment - _REMEMBERED_MICROSECONDS <= remembered[1] <= moment
    )


def _remember(token: str, stored_hash: str, moment: int) -> None:
    if len(_valid) >= _MAX_REMEMBERED:
        _valid.clear()
    _valid[_digest(token)] = (stored_hash, moment)


def _token(row: Any) -> Token:
    return Token(row.id, row.owner, row.label, row.created, row.used, row.revoked)
