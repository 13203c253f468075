"""What a distinct feed remembers of the items that came to its gate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenKey:
    """The last item with a key that came to the gate of a distinct feed. Times are microseconds since 1970.

    `key` is a digest, made with the feed's definition. From `expires` on the item makes no other a duplicate.
    """

    feed: int
    key: bytes
    sequence: int
    accepted: int
    expires: int
