"""Signing keys: with which the receiver of a webhook knows that a message is from this root.

In: subscriptions. Out: the bytes to sign with, newest first; and, once, the text that the receiver keeps. Keys are
secrets that Runnel must use again, so they are stored, sealed with the key of the workspace. A key that was replaced
still signs for a while, so that receivers can change theirs in time.
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
"""How the text of a key begins, by Standard Webhooks."""

OVERLAP = timedelta(hours=24)
MOST_KEYS = 4
"""Keys of one subscription that sign at once: each lengthens the headers of every message."""

_BYTES = 32
_k, _s = schema.signing_keys.c, schema.subscriptions.c
_MICROSECOND = timedelta(microseconds=1)


def key_text(key: bytes) -> str:
    """The form in which a receiver keeps a key.

    >>> key_text(bytes(3))
    'whsec_AAAA'
    """
    return PREFIX + b64encode(key).decode("ascii")


def make_key() -> bytes:
    """The bytes of a key that nobody else has."""
    return secrets.token_bytes(_BYTES)


def new_key(connection: Connection, subscription: int) -> str:
    """Make a key for a subscription and give its text; it is shown this once."""
    key = make_key()
    newest = connection.execute(select(func.max(_k.created)).where(_k.subscription == subscription)).scalar()
    # The order of keys is that of their times, so that two made in one instant must differ.
    created = max(now(connection), (newest or 0) + 1)
    values = {"subscription": subscription, "created": created, **seal(connection, SIGNING_KEYS, subscription, key)}
    connection.execute(insert(schema.signing_keys).values(values))
    return key_text(key)


def rotate_key(connection: Connection, subscription: int, overlap: timedelta = OVERLAP) -> str:
    """Make a new key and give its text; those before it sign for as long as the overlap, then no more."""
    own = _k.subscription == subscription
    until = now(connection) + max(overlap, timedelta()) // _MICROSECOND
    outlives = or_(_k.expires.is_(None), _k.expires > until)
    connection.execute(update(schema.signing_keys).where(own, outlives).values(expires=until))
    text = new_key(connection, subscription)
    kept = select(_k.created).where(own).order_by(_k.created.desc()).limit(MOST_KEYS)
    oldest = min(connection.execute(kept).scalars())
    over = or_(_k.created < oldest, _k.expires <= now(connection))
    connection.execute(delete(schema.signing_keys).where(own, over))
    return text


def forget_keys(connection: Connection, limit: int) -> int:
    """Drop keys of subscriptions that have ended, and keys that sign no more, of so many; gives how many went."""
    ended = select(_s.id).where(_s.ended.is_not(None))
    useless = or_(_k.subscription.in_(ended), _k.expires <= now(connection))
    rows = connection.execute(select(_k.subscription, _k.created).where(useless).limit(limit)).all()
    for row in rows:
        connection.execute(
            delete(schema.signing_keys).where(_k.subscription == row.subscription, _k.created == row.created)
        )
    return len(rows)


def keys_of(connection: Connection, subscriptions: Iterable[int]) -> dict[int, tuple[bytes, ...]]:
    """The keys with which messages of some subscriptions are signed now, newest first; none for those without.

    A key that cannot be unsealed is reported and left out, so that messages of other subscriptions are not held up.
    """
    valid = or_(_k.expires.is_(None), _k.expires > now(connection))
    query = select(schema.signing_keys).where(valid).order_by(_k.subscription, _k.created.desc())
    found: dict[int, list[bytes]] = {}
    for some in chunks(sorted(set(subscriptions))):
        for row in connection.execute(query.where(_k.subscription.in_(some))):
            try:
                key = unseal(connection, SIGNING_KEYS, row)
            except CorruptDataError as error:
                logger.error(
                    "%s; `rotate key of subscription %d` creates a new signing key", error.message, row.subscription
                )
            else:
                found.setdefault(row.subscription, []).append(key)
    return {subscription: tuple(keys) for subscription, keys in found.items()}
