"""Parts of the logs: the slices that workers read, and the match parts that they write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """The form of an item segment: as accepted (Arrow, sequence and time implied), or archived by day (Parquet).

    The items of a lost segment are gone, because its file was damaged; their sequences stay assigned.
    """

    LOG = "log"
    DAY = "day"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of items in one segment, with all data that a worker needs to read them without the catalog."""

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
    """One file of a match segment: the matches of a range of items."""

    path: str
    first_sequence: int
    last_sequence: int
    bytes: int
