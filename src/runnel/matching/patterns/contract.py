"""What a condition family provides for matching: a `PatternIndex`, which `runnel.families` names.

At compile time the index lays out the patterns of a plan part as arrays. A worker maps these arrays and gets a
`PatternMatcher`, which finds the patterns that hold of the items of a batch, and their solutions. Single patterns on
single items are decided by an `ItemSearch`, within the same limits.
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
    """Pairs of a row and the key of a pattern that holds of it; whether `doubted` pairs do was not decided."""

    rows: Array
    keys: Array
    doubted_rows: Array
    doubted_keys: Array


@dataclass(frozen=True, slots=True)
class FoundSolutions:
    """Solutions of a pattern on an item, and whether these are all."""

    solutions: tuple[Solution, ...]
    is_whole: bool


class ItemSearch(Protocol):
    """Decides patterns of one family on one item, within the limits of matching."""

    def holds(self, pattern: ItemPattern, /) -> bool | None:
        """Whether a pattern holds; None where the search was abandoned."""

    def solutions(self, pattern: ItemPattern, /) -> Iterator[Solution]:
        """The solutions of a pattern, at most as many as a match shows."""

    def found(self, pattern: ItemPattern, /) -> FoundSolutions:
        """The solutions of a pattern, as many as the limits allow."""


class PatternSolutions(Protocol):
    """The solutions of pairs of a row and an atom, in sets: an item with several values has several sets per pair."""

    @property
    def pairs(self) -> Array:
        """The pair that each set belongs to."""

    @property
    def is_whole(self) -> Array:
        """Whether each set has all solutions."""

    def rows(self, number: int, /) -> Array:
        """A set: a row of numbers for each solution, a column for each variable of the canonical pattern."""

    def value(self, number: int, /) -> Value:
        """The plain value that a number stands for."""


class PatternMatcher(Protocol):
    """The patterns of a plan part at work."""

    def keys(self, columns: ItemColumns, /) -> PatternKeys:
        """Which patterns hold of which rows of a batch."""

    def solutions(self, columns: ItemColumns, rows: Array, atoms: Array, named: Array, /) -> PatternSolutions:
        """The solutions of patterns, given as atoms of the plan, on rows of a batch.

        `named` are the variables of each pattern that have names, as bits. Solutions that agree on these may be given
        once.
        """


class PatternLayout(Protocol):
    """The patterns of a plan part as flat arrays, whose names begin with that of the family."""

    @property
    def counters(self) -> Mapping[str, int]:
        """Numbers for the record of what compiling found."""

    def arrays(self) -> Mapping[str, Array]:
        """The arrays that are read for every item."""

    def seldom(self) -> Mapping[str, Array]:
        """The arrays that are read where a binding is made."""


Layout = TypeVar("Layout", bound=PatternLayout)


class PatternIndex(Protocol[Layout]):
    """The fast side of a condition family."""

    @property
    def undecided(self) -> str:
        """Why a query stays undecided where a search was abandoned."""

    def lay_out(
        self, patterns: Sequence[ItemPattern], keys: Array, frequencies: Mapping[str, float] | None, /
    ) -> Layout:
        """The layout of canonical patterns, each with the key that stands for it."""

    def stored(self, arrays: Arrays, keys: int, /) -> Layout | None:
        """The layout among the arrays of a plan part with this many keys, checked; None where it has none.

        KeyError where an array is missing, ValueError where one does not fit the others.
        """

    def matcher(self, layout: Layout, atom_keys: Array, /) -> PatternMatcher:
        """A layout at work; `atom_keys` has the key of every atom of the plan part."""

    def holds(self, pattern: ItemPattern, columns: ItemColumns, row: int, /) -> bool:
        """Whether one pattern holds of one item of a batch. TooExpensiveError where that takes too many steps."""

    def search(self, attributes: Attributes, /) -> ItemSearch:
        """A search on one item; nothing is read before the first question."""

    def words(self, values: Sequence[Value], /) -> Iterable[str]:
        """What is counted of an item's values, so that `lay_out` gets frequencies."""


def index_of(family: str) -> PatternIndex[Any]:
    """The index of a family."""
    return cast(PatternIndex[Any], load_part(find_family(family).index))
