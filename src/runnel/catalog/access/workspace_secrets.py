"""Secrets of a root, made when they are first needed, and what is derived from them: links that end a subscription.

In: the number of a subscription. Out: a token for a link, which only this root could have made; and back.
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
"""The name of the secret behind links that end subscriptions."""

_BYTES = 32
_MARK_BYTES = 18
_LONGEST = 64


def workspace_secret(connection: Connection, name: str) -> bytes:
    """The secret of a name; made if there is none yet, so the transaction must be one that may write."""
    found = find_secret(connection, name)
    if found is None:
        found = secrets.token_bytes(_BYTES)
        connection.execute(insert(schema.secrets).values(name=name, **seal(connection, SECRETS, name, found)))
    return found


def find_secret(connection: Connection, name: str) -> bytes | None:
    """The secret of a name, if it was ever made."""
    row = connection.execute(select(schema.secrets).where(schema.secrets.c.name == name)).one_or_none()
    return None if row is None else unseal(connection, SECRETS, row)


def unsubscribe_token(secret: bytes, subscription: int) -> str:
    """The token of a link that ends a subscription. It is the same every time, and tells nothing of the secret.

    >>> unsubscribe_token(b"secret", 12).split(".")[0]
    '12'
    """
    return f"{subscription}.{_mark(secret, subscription)}"


def check_unsubscribe_token(secret: bytes, token: str) -> int | None:
    """The subscription that a token ends; None for a token that this secret did not make.

    >>> check_unsubscribe_token(b"secret", unsubscribe_token(b"secret", 12))
    12
    >>> check_unsubscribe_token(b"other", unsubscribe_token(b"secret", 12)) is None
    True
    """
    number, _, mark = token.partition(".")
    if len(token) > _LONGEST or not (number.isascii() and number.isdigit()):
        return None
    subscription = int(number)
    expected = _mark(secret, subscription)
    genuine = hmac.compare_digest(expected.encode(), mark.encode("utf-8", "replace"))
    # A number with leading zeros would be a second token for the same subscription.
    return subscription if genuine and str(subscription) == number else None


def _mark(secret: bytes, subscription: int) -> str:
    digest = hmac.new(secret, f"unsubscribe {subscription}".encode(), sha256).digest()
    return urlsafe_b64encode(digest[:_MARK_BYTES]).decode("ascii")
