"""What operators could not decide yet: an item, the queries concerned, and how often it was tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Undecided:
    """An item that waits to be logged once more, for some queries alone.

    `until` is when trying ends, in the log's microseconds; `attempts` counts what was tried.
    """

    sequence: int
    queries: tuple[int, ...]
    reason: str
    attempts: int
    until: int
    id: int = 0


@dataclass(frozen=True, slots=True)
class Supplement:
    """An item that is in the log once more: for these queries alone, to supplement what it matched before."""

    sequence: int
    supplements: int
    queries: tuple[int, ...]
    attempts: int
    until: int
