"""Files with answers of operators, as the catalog names them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheSegment:
    """A file with answers of operators: where it is, its size in bytes, and how many answers it has."""

    path: str
    bytes: int
    answers: int
