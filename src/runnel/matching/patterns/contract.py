"""The interface that a condition family implements for matching: a `PatternIndex`, registered in `runnel.families`.

At compile time the index encodes the patterns of a plan part as arrays. A worker maps these arrays and builds a
`PatternMatcher` from them, which finds the patterns that hold for the items of a batch, and their solutions. An
`ItemSearch` decides a single pattern on a single item, within the same limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from runnel.algebra.nodes.item_patterns import ItemPattern, Solution
from runnel.arrays import Array, Arrays
from runnel.families import find_family, load_part
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.model.item import Attributes, Value


@dataclass(frozen=True)
class PatternKeys:
    """Pairs of a row and the key of a pattern that holds for the row's item.

    For the `doubted` pairs the search was abandoned, so it is unknown whether the pattern holds.
    """

    rows: Array
    keys: Array
    doubted_rows: Array
    doubted_keys: Array


@dataclass(frozen=True, slots=True)
class FoundSolutions:
    """Solutions of a pattern on an item. `is_whole` is true if the list is complete."""

    solutions: tuple[Solution, ...]
    is_whole: bool


class ItemSearch(Protocol):
    """Decides patterns of one family on one item, within the limits of matching."""

    def holds(self, pattern: ItemPattern, /) -> bool | None:
        """Return whether a pattern holds, or None if the search was abandoned."""

    def solutions(self, pattern: ItemPattern, /) -> Iterator[Solution]:
        """Yield the solutions of a pattern, up to the number that a match shows."""

    def find_all(self, pattern: ItemPattern, /) -> FoundSolutions:
        """Return the solutions of a pattern, as many as the limits allow."""


class PatternSolutions(Protocol):
    """The solutions of pairs (row, atom), in sets. A pair has several sets if its item has several values."""

    @property
    def pairs(self) -> Array:
        """For each set, the index of its pair."""

    @property
    def is_whole(self) -> Array:
        """For each set, whether it contains all solutions."""

    def rows(self, number: int, /) -> Array:
        """Return the set with this number: one row per solution, one column per variable of the canonical pattern.

        The entries are numbers of values; see `value`.
        """

    def value(self, number: int, /) -> Value:
        """Return the plain value with this number."""


class PatternMatcher(Protocol):
    """Matches batches of items with the patterns of a plan part."""

    def keys(self, columns: ItemColumns, /) -> PatternKeys:
        """Find the patterns that hold for each row of a batch."""

    def solutions(self, columns: ItemColumns, rows: Array, atoms: Array, named: Array, /) -> PatternSolutions:
        """Return the solutions of pairs of a row of the batch and a pattern, which is an atom of the plan.

        `named` has a bit mask per pair: the variables of the pattern that have names. Solutions that differ only in
        other variables may be returned once.
        """


class PatternLayout(Protocol):
    """The patterns of a plan part as flat arrays. The names of the arrays begin with the name of the family."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters for the plan's record of compile costs."""

    def arrays(self) -> Mapping[str, Array]:
        """Return the arrays that are read for every item."""

    def seldom(self) -> Mapping[str, Array]:
        """Return the arrays that are read only when variables are bound."""


Layout = TypeVar("Layout", bound=PatternLayout)


class PatternIndex(Protocol[Layout]):
    """The implementation of matching for one condition family."""

    @property
    def undecided(self) -> str:
        """The reason reported for a query that is undecided because a search was abandoned."""

    def compute_layout(
        self, patterns: Sequence[ItemPattern], keys: Array, frequencies: Mapping[str, float] | None, /
    ) -> Layout:
        """Encode canonical patterns as arrays. `keys` has the key of each pattern."""

    def stored(self, arrays: Arrays, keys: int, /) -> Layout | None:
        """Load and check the layout from the arrays of a plan part; `keys` is the number of its keys.

        Return None if the part has no such layout. Raise KeyError if an array is missing, and ValueError if an array
        does not fit the others.
        """

    def matcher(self, layout: Layout, atom_keys: Array, /) -> PatternMatcher:
        """Build the matcher of a layout. `atom_keys` has the key of every atom of the plan part."""

    def holds(self, pattern: ItemPattern, columns: ItemColumns, row: int, /) -> bool:
        """Return whether a pattern holds for the item in a row. Raise TooExpensiveError after too many steps."""

    def search(self, attributes: Attributes, /) -> ItemSearch:
        """Build a search on one item. The attributes are not read before its first method call."""

    def words(self, values: Sequence[Value], /) -> Iterable[str]:
        """Return the words of values that stream statistics count, the `frequencies` of `compute_layout`."""


def index_of(family: str) -> PatternIndex[Any]:
    """Load the index of a family."""
    return cast(PatternIndex[Any], load_part(find_family(family).index))
