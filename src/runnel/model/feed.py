"""Feeds as declared: source feeds come from outside, virtual feeds are defined by a query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

ADMIN = 1
"""The owner who installed the root. What the operator declares others may read; all else is private."""


class FeedKind(StrEnum):
    """Where a feed's items come from."""

    SOURCE = "source"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class Feed:
    """A named stream of items.

    `id` is the catalog's, never reused; it is also the query's id in match logs. `statement` is the canonical
    text that declares the feed. `address` is where a source feed's items come from (empty: only by `publish`) and
    `every` how often it is asked. A materialised feed is a source feed whose items are made from those of the feed
    `origin` by the stylesheet at the path `sheet`. `title` is what people call a source feed, `home` its home page.
    Into a feed with `open_items` anybody may publish as many items per minute (0: as the settings say).
    """

    id: int
    name: str
    kind: FeedKind
    statement: str
    address: str | None = None
    revision: int = 1
    paused: bool = False
    owner: int = ADMIN
    every: timedelta | None = None
    origin: int | None = None
    sheet: str | None = None
    title: str | None = None
    home: str | None = None
    open_items: int | None = None
