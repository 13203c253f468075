"""Secrets of a workspace, created when first needed, and the unsubscribe tokens derived from them.

In: the number of a subscription. Out: a token for a link that only this workspace can create, and vice versa.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256

from sqlalchemy import Connection, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.sealed_secrets import SECRETS, seal, unseal

UNSUBSCRIBE = "unsubscribe"
"""The name of the secret of unsubscribe links."""

_BYTES = 32
_MARK_BYTES = 18
_MAX_LENGTH = 64


def workspace_secret(connection: Connection, name: str) -> bytes:
    """Return the secret of a name, and create it if necessary. The transaction must allow writing."""
    secret = find_secret(connection, name)
    if secret is None:
        secret = secrets.token_bytes(_BYTES)
        connection.execute(insert(schema.secrets).values(name=name, **seal(connection, SECRETS, name, secret)))
    return secret


def find_secret(connection: Connection, name: str) -> bytes | None:
    """Return the secret of a name, or None if it was never created."""
    row = connection.execute(select(schema.secrets).where(schema.secrets.c.name == name)).one_or_none()
    return None if row is None else unseal(connection, SECRETS, row)


def unsubscribe_token(secret: bytes, subscription: int) -> str:
    """Return the token of a link that ends a subscription. It is always the same and does not reveal the secret.

    >>> unsubscribe_token(b"secret", 12).split(".")[0]
    '12'
    """
    return f"{subscription}.{_mark(secret, subscription)}"


def check_unsubscribe_token(secret: bytes, token: str) -> int | None:
    """Return the subscription that a token ends, or None if the token was not created with this secret.

    >>> check_unsubscribe_token(b"secret", unsubscribe_token(b"secret", 12))
    12
    >>> check_unsubscribe_token(b"other", unsubscribe_token(b"secret", 12)) is None
    True
    """
    number, _, mark = token.partition(".")
    if len(token) > _MAX_LENGTH or not (number.isascii() and number.isdigit()):
        return None
    subscription = int(number)
    expected = _mark(secret, subscription)
    genuine = hmac.compare_digest(expected.encode(), mark.encode("utf-8", "replace"))
    # Leading zeros would allow a second token for the same subscription.
    return subscription if genuine and str(subscription) == number else None


def _mark(secret: bytes, subscription: int) -> str:
    digest = hmac.new(secret, f"unsubscribe {subscription}".encode(), sha256).digest()
    return urlsafe_b64encode(digest[:_MARK_BYTES]).decode("ascii")
