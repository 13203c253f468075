"""What a condition family provides for partitions: a `PatternCover`, which `runnel.families` names.

A router sends an item to the partitions that have a query which may match it. It checks few conditions that cover the
queries of a partition, so a family says which patterns contain others and which pattern can stand for several.
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
    """The stored forms of new patterns, and for each old pattern the new one that holds wherever it does, or -1."""

    texts: tuple[str, ...]
    of_patterns: Array
    counters: Mapping[str, int] = field(default_factory=dict)


class PatternCover(Protocol):
    """How the patterns of a family contain one another, and what they cost in a partition."""

    @property
    def copy_microseconds(self) -> float:
        """What it costs to read the values of an item in one more partition."""

    def contains(self, wide: ItemPattern, narrow: ItemPattern, /) -> bool:
        """Whether a pattern surely holds wherever another does; it may miss cases."""

    def containing_pairs(
        self, patterns: Sequence[ItemPattern], counters: dict[str, int] | None, /
    ) -> tuple[Array, Array]:
        """Positions of patterns, and of patterns that contain them; it may miss some. `counters` says how many."""

    def merged(self, patterns: Sequence[ItemPattern], lower: int, samples: Sequence[Value], /) -> MergedPatterns:
        """Patterns that stand for several, until about `lower` are left: for those that hold together of samples."""

    def features(self, text: str, /) -> Iterable[tuple[Hashable, bool]]:
        """Features of a stored pattern, and whether each is distinctive; patterns that share features are similar."""


class NoCover:
    """The cover of a family that has none: patterns contain only themselves, and none stands for others."""

    copy_microseconds = 100.0

    def contains(self, wide: ItemPattern, narrow: ItemPattern) -> bool:
        """Whether the patterns are equal."""
        return wide == narrow

    def containing_pairs(
        self, patterns: Sequence[ItemPattern], counters: dict[str, int] | None
    ) -> tuple[Array, Array]:
        """None."""
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def merged(self, patterns: Sequence[ItemPattern], lower: int, samples: Sequence[Value]) -> MergedPatterns:
        """None."""
        return MergedPatterns((), np.full(len(patterns), -1, dtype=np.int64))

    def features(self, text: str) -> Iterable[tuple[Hashable, bool]]:
        """The pattern as a whole."""
        return ((text, True),)


def cover_of(family: str) -> PatternCover:
    """The cover of a family."""
    reference = find_family(family).cover
    return NoCover() if reference is None else cast(PatternCover, load_part(reference))
