"""Feeds as declared: source feeds come from outside, virtual feeds are defined by a query."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FeedKind(StrEnum):
    """Where a feed's items come from."""

    SOURCE = "source"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class Feed:
    """A named stream of items.

    `id` is the catalog's, never reused; it is also the query's id in match logs. `statement` is the canonical
    text that declares the feed. `address` is where a source feed's items come from (empty: only by `publish`).
    """

    id: int
    name: str
    kind: FeedKind
    statement: str
    address: str | None = None
    revision: int = 1
    paused: bool = False
