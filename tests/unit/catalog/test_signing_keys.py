"""Signing keys: random, kept apart, replaced with an overlap."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from tests.catalog_rows import add_subscription

from runnel.catalog.access.signing_keys import (
    MAX_KEYS,
    OVERLAP,
    PREFIX,
    forget_keys,
    key_text,
    keys_of,
    new_key,
    rotate_key,
)
from runnel.catalog.declared.subscriptions import end_subscription
from runnel.catalog.store import schema
from runnel.catalog.store.connection import Catalog
from runnel.workspace_key import WorkspaceKey

KEY = WorkspaceKey.make()


@dataclass
class Time:
    """A clock that goes when told."""

    seconds: float = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def catalog(tmp_path: Path, time: Time) -> Iterator[Catalog]:
    made = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}", clock=time, key=lambda: KEY)
    made.migrate()
    yield made
    made.close()


def keys(catalog: Catalog, subscription: int) -> tuple[bytes, ...]:
    with catalog.read() as connection:
        return keys_of(connection, [subscription]).get(subscription, ())


def raw(text: str) -> bytes:
    assert text.startswith(PREFIX)
    return b64decode(text.removeprefix(PREFIX), validate=True)


def test_a_key_is_32_random_bytes_shown_as_text(catalog: Catalog) -> None:
    with catalog.write() as connection:
        first, second = new_key(connection, 1), new_key(connection, 2)
    assert len(raw(first)) == 32
    assert first != second
    assert keys(catalog, 1) == (raw(first),)
    assert keys(catalog, 2) == (raw(second),)
    assert key_text(raw(first)) == first


def test_a_replaced_key_signs_until_the_overlap_is_over(catalog: Catalog, time: Time) -> None:
    with catalog.write() as connection:
        old = new_key(connection, 1)
    time.seconds += 60
    with catalog.write() as connection:
        new = rotate_key(connection, 1, timedelta(hours=1))
    assert keys(catalog, 1) == (raw(new), raw(old))
    time.seconds += 3599.5
    assert keys(catalog, 1) == (raw(new), raw(old))
    time.seconds += 0.5
    assert keys(catalog, 1) == (raw(new),)


def test_rotation_at_the_same_instant_keeps_order_and_earlier_expiry(catalog: Catalog, time: Time) -> None:
    with catalog.write() as connection:
        first = new_key(connection, 1)
        second = rotate_key(connection, 1, timedelta(hours=1))
        third = rotate_key(connection, 1, timedelta(hours=9))
    assert keys(catalog, 1) == (raw(third), raw(second), raw(first))
    time.seconds += 3600
    assert keys(catalog, 1) == (raw(third), raw(second))


def test_without_an_overlap_the_old_key_ends_at_once(catalog: Catalog) -> None:
    with catalog.write() as connection:
        new_key(connection, 1)
        new = rotate_key(connection, 1, timedelta())
    assert keys(catalog, 1) == (raw(new),)


def test_a_subscription_without_a_key_gets_one_by_rotating(catalog: Catalog) -> None:
    with catalog.write() as connection:
        new = rotate_key(connection, 7)
    assert keys(catalog, 7) == (raw(new),)


def test_rotation_deletes_expired_keys(catalog: Catalog, time: Time) -> None:
    with catalog.write() as connection:
        new_key(connection, 1)
        rotate_key(connection, 1, timedelta(seconds=1))
    time.seconds += 2
    with catalog.write() as connection:
        rotate_key(connection, 1)
        rows = connection.execute(select(func.count()).select_from(schema.signing_keys)).scalar_one()
    assert rows == 2


def test_keys_of_many_subscriptions_are_read_together(catalog: Catalog) -> None:
    with catalog.write() as connection:
        made = {number: raw(new_key(connection, number)) for number in range(1, 1203)}
        results = keys_of(connection, [*range(1, 1300), 5])
    assert results == {number: (key,) for number, key in made.items()}


@settings(deadline=None, max_examples=25)
@given(
    overlaps=st.lists(st.integers(0, 7200), max_size=8), waits=st.lists(st.integers(0, 3600), min_size=8, max_size=8)
)
def test_the_newest_key_always_signs_and_others_only_within_their_overlap(
    tmp_path_factory: pytest.TempPathFactory, overlaps: list[int], waits: list[int]
) -> None:
    time = Time()
    catalog = Catalog(f"sqlite:///{tmp_path_factory.mktemp('keys') / 'catalog.sqlite'}", clock=time, key=lambda: KEY)
    catalog.migrate()
    with catalog.write() as connection:
        ends: dict[bytes, float] = {raw(new_key(connection, 1)): float("inf")}
    for overlap, wait in zip(overlaps, waits, strict=False):
        time.seconds += wait
        with catalog.write() as connection:
            ends = {key: min(end, time.seconds + overlap) for key, end in ends.items()}
            ends[raw(rotate_key(connection, 1, timedelta(seconds=overlap)))] = float("inf")
    living = [key for key, end in ends.items() if end > time.seconds]
    assert keys(catalog, 1) == tuple(reversed(living[-MAX_KEYS:]))
    catalog.close()


def test_keys_of_ended_subscriptions_are_deleted(catalog: Catalog, time: Time) -> None:
    with catalog.write() as connection:
        numbers = [
            add_subscription(connection, 1, "webhook", "https://a.example/", since=0, every=None, lifetime=None)
            for _ in range(4)
        ]
        for number in numbers:
            new_key(connection, number)
        kept = keys_of(connection, numbers[:1])[numbers[0]]
        rotated = raw(rotate_key(connection, numbers[1]))
        for ended in numbers[2:]:
            end_subscription(connection, ended)
        assert (forget_keys(connection, 1), forget_keys(connection, 9), forget_keys(connection, 9)) == (1, 1, 0)
        assert keys_of(connection, numbers).keys() == set(numbers[:2])
        assert len(keys_of(connection, numbers)[numbers[1]]) == 2, "the old one still signs"
    time.seconds += OVERLAP.total_seconds() + 1
    with catalog.write() as connection:
        assert forget_keys(connection, 9) == 1
        assert keys_of(connection, numbers) == {numbers[0]: kept, numbers[1]: (rotated,)}
        assert connection.execute(select(func.count()).select_from(schema.signing_keys)).scalar_one() == 2
