"""Files of cached operator answers, as listed in the catalog."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheSegment:
    """A file of cached operator answers: its path, its size in bytes, and its number of answers."""

    path: str
    bytes: int
    answers: int
