"""Undecided items: operators failed, so the item is retried for the affected queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Undecided:
    """An item that waits to be logged again for certain queries.

    `until` is when retries end, in the log's microseconds; `attempts` counts the attempts.
    """

    sequence: int
    queries: tuple[int, ...]
    reason: str
    attempts: int
    until: int
    id: int = 0


@dataclass(frozen=True, slots=True)
class Supplement:
    """An item that was logged again, for these queries only, to supplement its earlier matches."""

    sequence: int
    supplements: int
    queries: tuple[int, ...]
    attempts: int
    until: int
