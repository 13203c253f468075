"""The contract `PatternCover`, with which a condition family supports partitions. `runnel.families` lists them.

A router sends an item to the partitions with queries that may match it. It checks few conditions, which cover the
queries of a partition. A family therefore determines which patterns contain others, and merges several into one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np

from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.arrays import Array
from runnel.families import find_family, load_part
from runnel.model.item import Value

Samples = Mapping[str, Sequence[Value]]
"""Values of recent items, by the name of their kind."""


@dataclass(frozen=True)
class MergedPatterns:
    """The stored forms of new patterns, and for each old pattern the new pattern that it implies, or -1."""

    texts: tuple[str, ...]
    of_patterns: Array
    counters: Mapping[str, int] = field(default_factory=dict)


class PatternCover(Protocol):
    """Determines which patterns of a family contain others, and what they cost in a partition."""

    @property
    def copy_microseconds(self) -> float:
        """The cost of reading the values of an item in one more partition."""

    def contains(self, wide: ItemPattern, narrow: ItemPattern, /) -> bool:
        """Return whether `wide` holds for every value for which `narrow` does. False may also mean unknown."""

    def containing_pairs(
        self, patterns: Sequence[ItemPattern], counters: dict[str, int] | None, /
    ) -> tuple[Array, Array]:
        """Return positions of patterns, and of patterns that contain them. Some pairs may be missing.

        Add statistics to `counters`.
        """

    def merged(self, patterns: Sequence[ItemPattern], lower: int, samples: Sequence[Value], /) -> MergedPatterns:
        """Merge patterns into more general ones until about `lower` are left.

        Prefer to merge patterns that hold for the same samples.
        """

    def features(self, text: str, /) -> Iterable[tuple[Hashable, bool]]:
        """Return the features of a stored pattern, and whether each is distinctive. Similar ones share features."""


class NoCover:
    """The cover of a family without one: patterns contain only themselves and are not merged."""

    copy_microseconds = 100.0

    def contains(self, wide: ItemPattern, narrow: ItemPattern) -> bool:
        """Return whether the patterns are equal."""
        return wide == narrow

    def containing_pairs(
        self, patterns: Sequence[ItemPattern], counters: dict[str, int] | None
    ) -> tuple[Array, Array]:
        """Return no pairs."""
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def merged(self, patterns: Sequence[ItemPattern], lower: int, samples: Sequence[Value]) -> MergedPatterns:
        """Return no new patterns."""
        return MergedPatterns((), np.full(len(patterns), -1, dtype=np.int64))

    def features(self, text: str) -> Iterable[tuple[Hashable, bool]]:
        """Return the whole pattern as its only feature."""
        return ((text, True),)


def cover_of(family: str) -> PatternCover:
    """Return the cover of a family."""
    reference = find_family(family).cover
    return NoCover() if reference is None else cast(PatternCover, load_part(reference))
