"""Secrets in the catalog, encrypted with the key of the workspace, which is not in the catalog.

In: the secrets of rows. Out: their encrypted form, and vice versa.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, delete, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import workspace_key
from runnel.errors import WorkspaceError

_KEY = "key"
"""The counter that contains the fingerprint of the key."""
_c = schema.counters.c


class _Place(NamedTuple):
    """A column with secrets, and the column that identifies their owner."""

    table: Table
    secret: str
    of: str
    purpose: str


SECRETS = _Place(schema.secrets, "value", "name", "secret")
SIGNING_KEYS = _Place(schema.signing_keys, "value", "subscription", "signing key")
HUBS = _Place(schema.hubs, "secret", "feed", "hub")
_PLACES = (SECRETS, SIGNING_KEYS, HUBS)


def seal(connection: Connection, place: _Place, of: object, secret: bytes) -> dict[str, Any]:
    """Return the column values of a row that contains a secret.

    Raise WorkspaceError if the key of the workspace was replaced after this process read it, because nobody could
    decrypt the secret.
    """
    key = workspace_key(connection)
    if read_fingerprint(connection) not in (None, key.fingerprint):
        raise WorkspaceError(
            "the key of the workspace was replaced while this process was running", hint="restart this process"
        )
    return {place.secret: key.seal(f"{place.purpose} {of}", secret)}


def unseal(connection: Connection, place: _Place, row: Any) -> bytes:
    """Return the secret in a row."""
    sealed = bytes(getattr(row, place.secret))
    return workspace_key(connection).unseal(f"{place.purpose} {getattr(row, place.of)}", sealed)


def forget_secrets(connection: Connection) -> int:
    """Delete the secrets whose key is lost. Return their number. Most are created again when they are needed.

    Webhooks are the exception: each needs a new signing key, which its receiver must know.
    """
    count = 0
    for place in _PLACES:
        count += connection.execute(delete(place.table)).rowcount
    connection.execute(delete(schema.counters).where(_c.name == _KEY))
    return count


def read_fingerprint(connection: Connection) -> int | None:
    """Return the fingerprint of the key that encrypts the secrets, or None before the first key."""
    value = connection.execute(select(_c.value).where(_c.name == _KEY)).scalar_one_or_none()
    return None if value is None else int(value)


def set_fingerprint(connection: Connection, fingerprint: int) -> None:
    """Record which key encrypts the secrets."""
    connection.execute(insert(schema.counters).values(name=_KEY, value=fingerprint))
