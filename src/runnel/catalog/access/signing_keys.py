"""Signing keys, with which the receiver of a webhook verifies that a message comes from this workspace.

In: subscriptions. Out: the keys to sign with, newest first, and once, the text that the receiver stores. Runnel must
use the keys again, so they are stored, encrypted with the key of the workspace. A replaced key keeps signing for a
while, so that receivers have time to switch.
"""

from __future__ import annotations

import logging
import secrets
from base64 import b64encode
from collections.abc import Iterable
from datetime import timedelta

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.catalog.store.sealed_secrets import SIGNING_KEYS, seal, unseal
from runnel.errors import CorruptDataError

logger = logging.getLogger(__name__)

PREFIX = "whsec_"
"""The prefix of a key's text, according to Standard Webhooks."""

OVERLAP = timedelta(hours=24)
MAX_KEYS = 4
"""Maximum number of keys that sign for a subscription. Each key lengthens the headers of every message."""

_BYTES = 32
_k, _s = schema.signing_keys.c, schema.subscriptions.c
_MICROSECOND = timedelta(microseconds=1)


def key_text(key: bytes) -> str:
    """Return the form in which a receiver stores a key.

    >>> key_text(bytes(3))
    'whsec_AAAA'
    """
    return PREFIX + b64encode(key).decode("ascii")


def make_key() -> bytes:
    """Generate the bytes of a key."""
    return secrets.token_bytes(_BYTES)


def new_key(connection: Connection, subscription: int) -> str:
    """Create a key for a subscription and return its text, which cannot be shown again."""
    key = make_key()
    newest = connection.execute(select(func.max(_k.created)).where(_k.subscription == subscription)).scalar()
    # Keys are ordered by time, so two keys created at the same instant must get different times.
    created = max(now(connection), (newest or 0) + 1)
    values = {"subscription": subscription, "created": created, **seal(connection, SIGNING_KEYS, subscription, key)}
    connection.execute(insert(schema.signing_keys).values(values))
    return key_text(key)


def rotate_key(connection: Connection, subscription: int, overlap: timedelta = OVERLAP) -> str:
    """Create a new key and return its text. Earlier keys keep signing for the duration of the overlap."""
    own = _k.subscription == subscription
    until = now(connection) + max(overlap, timedelta()) // _MICROSECOND
    outlives = or_(_k.expires.is_(None), _k.expires > until)
    connection.execute(update(schema.signing_keys).where(own, outlives).values(expires=until))
    text = new_key(connection, subscription)
    kept = select(_k.created).where(own).order_by(_k.created.desc()).limit(MAX_KEYS)
    oldest = min(connection.execute(kept).scalars())
    over = or_(_k.created < oldest, _k.expires <= now(connection))
    connection.execute(delete(schema.signing_keys).where(own, over))
    return text


def forget_keys(connection: Connection, limit: int) -> int:
    """Delete up to `limit` keys that have expired or whose subscriptions have ended. Return their number."""
    ended = select(_s.id).where(_s.ended.is_not(None))
    useless = or_(_k.subscription.in_(ended), _k.expires <= now(connection))
    rows = connection.execute(select(_k.subscription, _k.created).where(useless).limit(limit)).all()
    for row in rows:
        connection.execute(
            delete(schema.signing_keys).where(_k.subscription == row.subscription, _k.created == row.created)
        )
    return len(rows)


def keys_of(connection: Connection, subscriptions: Iterable[int]) -> dict[int, tuple[bytes, ...]]:
    """Return the keys that currently sign the messages of subscriptions, newest first.

    A key that cannot be decrypted is logged and omitted, so that messages of other subscriptions are not delayed.
    """
    valid = or_(_k.expires.is_(None), _k.expires > now(connection))
    query = select(schema.signing_keys).where(valid).order_by(_k.subscription, _k.created.desc())
    keys: dict[int, list[bytes]] = {}
    for chunk in chunks(sorted(set(subscriptions))):
        for row in connection.execute(query.where(_k.subscription.in_(chunk))):
            try:
                key = unseal(connection, SIGNING_KEYS, row)
            except CorruptDataError as error:
                logger.error(
                    "%s; `rotate key of subscription %d` creates a new signing key", error.message, row.subscription
                )
            else:
                keys.setdefault(row.subscription, []).append(key)
    return {subscription: tuple(signing) for subscription, signing in keys.items()}
