"""The memory of a distinct feed: the keys of the items that reached its gate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenKey:
    """The last item with a key that reached the gate of a distinct feed. Times are microseconds since 1970.

    `key` is a digest that includes the feed's definition. From `expires` on, other items are no longer duplicates of
    this item.
    """

    feed: int
    key: bytes
    sequence: int
    accepted: int
    expires: int
