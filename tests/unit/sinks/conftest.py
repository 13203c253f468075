"""What the tests of sinks share: deliveries made in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runnel.model.item import Item, Value
from runnel.model.subscription import Subscription
from runnel.sinks.contract import DeliveredItem, Delivery

SENT = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
Deliver = Callable[..., Delivery]


@pytest.fixture
def make_item() -> Callable[..., Item]:
    def make(identifier: str, sequence: int, version: int = 1, **attributes: Value) -> Item:
        named = {name: (value,) for name, value in {"title": f"Title {identifier}", **attributes}.items()}
        return Item("News", identifier, named, version, sequence, SENT)

    return make


@pytest.fixture
def make_delivery(tmp_path: Path) -> Deliver:
    def make(target: str | None, *items: Item, key: str = "m1", most: int = 200) -> Delivery:
        subscription = Subscription(1, 2, "rss", target, 0, SENT)
        return Delivery(
            key=key,
            subscription=subscription,
            feed_name="RockConcerts",
            feed_title="Rock & Concerts",
            items=[DeliveredItem(item, "The News") for item in items],
            sent=SENT,
            out=tmp_path / "out",
            allowed=(tmp_path / "allowed",),
            max_entries=most,
        )

    return make


@pytest.fixture
def to(make_item: Callable[..., Item], make_delivery: Deliver) -> Deliver:
    """A delivery by mail."""

    def make(address: str = "me@mail.example", key: str = "1f-1-1", **changed: Any) -> Delivery:
        item = make_item("a", 1, title="Muse on tour", description="Three nights.", link="https://muse.example/")
        return replace(make_delivery(address, item, key=key), **changed)

    return make
