"""Pieces of the logs: what a worker is told to read, and what it says it has written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """Where a segment of items is: as accepted (Arrow; sequence and time implied), or archived by day (Parquet).

    The items of a lost segment are gone, because its file was damaged; their sequences stay taken.
    """

    LOG = "log"
    DAY = "day"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of items inside one segment: what a worker needs to read them without asking the catalog."""

    tier: str
    path: str
    first_row: int
    rows: int
    first_sequence: int
    accepted: int

    @property
    def last_sequence(self) -> int:
        """The sequence of the last item."""
        return self.first_sequence + self.rows - 1


@dataclass(frozen=True, slots=True)
class MatchPart:
    """One file of a match segment: the matches of a run of items."""

    path: str
    first_sequence: int
    last_sequence: int
    bytes: int
