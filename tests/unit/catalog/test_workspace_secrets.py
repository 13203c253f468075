"""Secrets of a root, and links that end a subscription."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runnel.catalog.access.workspace_secrets import (
    UNSUBSCRIBE,
    check_unsubscribe_token,
    find_secret,
    unsubscribe_token,
    workspace_secret,
)
from runnel.catalog.store.connection import Catalog
from runnel.workspace_key import WorkspaceKey

KEY = WorkspaceKey.make()


def test_secret_is_created_once(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}", key=lambda: KEY)
    catalog.migrate()
    with catalog.read() as connection:
        assert find_secret(connection, UNSUBSCRIBE) is None
    with catalog.write() as connection:
        made = workspace_secret(connection, UNSUBSCRIBE)
        assert workspace_secret(connection, "another") != made
    with catalog.write() as connection:
        assert workspace_secret(connection, UNSUBSCRIBE) == made
    with catalog.read() as connection:
        assert find_secret(connection, UNSUBSCRIBE) == made
    assert len(made) == 32
    catalog.close()


@given(st.binary(min_size=1, max_size=40), st.integers(0, 2**63))
def test_a_token_ends_its_own_subscription(secret: bytes, subscription: int) -> None:
    token = unsubscribe_token(secret, subscription)
    assert check_unsubscribe_token(secret, token) == subscription
    assert all(character.isalnum() or character in "-_." for character in token), "it is safe in a link"
    assert check_unsubscribe_token(secret + b"!", token) is None


@given(st.text(max_size=80))
def test_forged_tokens_end_no_subscription(token: str) -> None:
    assert check_unsubscribe_token(b"secret", token) is None


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_token_of_one_subscription_does_not_end_another(one: int, other: int) -> None:
    mark = unsubscribe_token(b"secret", one).split(".")[1]
    expected = one if one == other else None
    assert check_unsubscribe_token(b"secret", f"{other}.{mark}") == expected
    assert check_unsubscribe_token(b"secret", f"0{one}.{mark}") is None
