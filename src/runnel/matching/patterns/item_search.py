"""Item patterns of all families on one item. In: an item's attributes. Out: solutions, within limits."""

from __future__ import annotations

from collections.abc import Iterator

from runnel.algebra.nodes.item_patterns import ItemPattern, Solution
from runnel.algebra.semantics.bindings import distinct
from runnel.matching.patterns.contract import FoundSolutions, ItemSearch, index_of
from runnel.model.item import Attributes, Value


class FamilySearch:
    """Asks the family of each pattern; a family's part of the item is read once, when it is first asked for."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._searches: dict[str, ItemSearch] = {}

    def holds(self, pattern: ItemPattern) -> bool | None:
        """Whether a pattern holds; None where the search was abandoned."""
        return self._search(pattern).holds(pattern)

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """The solutions of a pattern, at most as many as a match shows."""
        return self._search(pattern).solutions(pattern)

    def rows(self, pattern: ItemPattern) -> list[dict[str, Value]] | None:
        """The distinct bindings of a pattern; None where there are too many."""
        found = self.found(pattern)
        return _rows(pattern, found) if found.is_whole else None

    def found(self, pattern: ItemPattern) -> FoundSolutions:
        """The solutions of a pattern, as many as the limits allow."""
        return self._search(pattern).found(pattern)

    def first_rows(self, pattern: ItemPattern) -> list[dict[str, Value]]:
        """The distinct bindings of a pattern; where there are too many, those that are found first."""
        return _rows(pattern, self.found(pattern))

    def _search(self, pattern: ItemPattern) -> ItemSearch:
        found = self._searches.get(pattern.family)
        if found is None:
            found = self._searches[pattern.family] = index_of(pattern.family).search(self._attributes)
        return found


def _rows(pattern: ItemPattern, found: FoundSolutions) -> list[dict[str, Value]]:
    return distinct(map(pattern.binding, found.solutions))
