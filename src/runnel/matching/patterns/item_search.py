"""Search for item patterns of all families on one item. In: an item's attributes. Out: solutions, within limits."""

from __future__ import annotations

from collections.abc import Iterator

from runnel.algebra.nodes.item_patterns import ItemPattern, Solution
from runnel.algebra.semantics.bindings import distinct
from runnel.matching.patterns.contract import FoundSolutions, ItemSearch, index_of
from runnel.model.item import Attributes, Value


class FamilySearch:
    """Delegates each pattern to the search of its family, which is created when first needed and then reused."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._searches: dict[str, ItemSearch] = {}

    def holds(self, pattern: ItemPattern) -> bool | None:
        """Return whether a pattern holds, or None if the search was abandoned."""
        return self._search(pattern).holds(pattern)

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """Yield the solutions of a pattern, up to the number that a match shows."""
        return self._search(pattern).solutions(pattern)

    def rows(self, pattern: ItemPattern) -> list[dict[str, Value]] | None:
        """Return the distinct bindings of a pattern, or None if the limits cut them off."""
        found_solutions = self.find_all(pattern)
        return _rows(pattern, found_solutions) if found_solutions.is_whole else None

    def find_all(self, pattern: ItemPattern) -> FoundSolutions:
        """Return the solutions of a pattern, as many as the limits allow."""
        return self._search(pattern).find_all(pattern)

    def first_rows(self, pattern: ItemPattern) -> list[dict[str, Value]]:
        """Return the distinct bindings of a pattern; if the limits cut them off, those that were found first."""
        return _rows(pattern, self.find_all(pattern))

    def _search(self, pattern: ItemPattern) -> ItemSearch:
        search = self._searches.get(pattern.family)
        if search is None:
            search = self._searches[pattern.family] = index_of(pattern.family).search(self._attributes)
        return search


def _rows(pattern: ItemPattern, found_solutions: FoundSolutions) -> list[dict[str, Value]]:
    return distinct(map(pattern.binding, found_solutions.solutions))
