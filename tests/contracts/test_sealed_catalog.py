"""Secrets that an earlier version stored in clear are sealed in every database, and stay what they were."""

from __future__ import annotations

from sqlalchemy import insert, select

from runnel.catalog.access.signing_keys import keys_of
from runnel.catalog.access.workspace_secrets import find_secret
from runnel.catalog.polling.hubs import hub_by_callback
from runnel.catalog.store import schema
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sealed_secrets import (
    forget_sealed_secrets,
    read_fingerprint,
    seal_clear_secrets,
    set_fingerprint,
)

CLEAR = bytes(range(256))
TABLES = (schema.secrets, schema.signing_keys, schema.hubs)


def test_clear_secrets_are_sealed_once_and_can_be_forgotten(catalog: Catalog) -> None:
    with catalog.write() as connection:
        connection.execute(insert(schema.secrets).values(name="unsubscribe", value=CLEAR))
        for created, subscription in enumerate((1, 1, 2)):
            values = {"subscription": subscription, "value": CLEAR, "created": created}
            connection.execute(insert(schema.signing_keys).values(values))
        hub = {"feed": 7, "hub": "h", "topic": "t", "callback": "c", "secret": CLEAR, "state": "active"}
        connection.execute(insert(schema.hubs).values(hub))
    for expected in (5, 0):
        with catalog.write() as connection:
            assert seal_clear_secrets(connection) == expected
            assert find_secret(connection, "unsubscribe") == CLEAR
            assert keys_of(connection, [1, 2]) == {1: (CLEAR, CLEAR), 2: (CLEAR,)}
            found = hub_by_callback(connection, "c")
            assert found is not None
            assert found.secret == CLEAR
            for table in TABLES:
                for row in connection.execute(select(table)):
                    assert row.sealed
                    assert CLEAR not in (bytes(value) for value in row if isinstance(value, bytes))
    with catalog.write() as connection:
        set_fingerprint(connection, (1 << 62) - 1)
        assert read_fingerprint(connection) == (1 << 62) - 1
        assert forget_sealed_secrets(connection) == 5
        assert read_fingerprint(connection) is None
        assert [connection.execute(select(table)).all() for table in TABLES] == [[], [], []]
