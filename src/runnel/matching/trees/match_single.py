"""Match tree patterns against one item, for conditions that the index does not decide. The search has limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import cast

import numpy as np

from runnel.algebra.nodes.item_patterns import ItemPattern, Solution
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.algebra.trees.tree_solutions import solve
from runnel.errors import TooExpensiveError
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.patterns.contract import FoundSolutions
from runnel.matching.trees.tree_layout import TreeLayout
from runnel.matching.trees.tree_part import TreePart, first_solutions
from runnel.model.item import Attributes, Item
from runnel.model.item_batch import ItemBatch
from runnel.model.trees.document_tree import TREE, DocumentTree
from runnel.model.trees.tree_nodes import TreeNodes, nodes_of

TOO_MUCH_WORK = "the search for a tree pattern of this query in the item's tree takes too many steps"
"""The reason of a query that is undecided because a search was abandoned."""


def tree_holds(pattern: TreePattern, columns: ItemColumns, row: int) -> bool:
    """Return whether the item in a row matches a pattern. Raise TooExpensiveError if that takes too many steps."""
    if not columns.positions(row, TREE):
        return False
    row_columns = ItemColumns(ItemBatch(columns.batch.records.slice(row, 1)))
    keys = _matcher(pattern.canonical()).keys(row_columns)
    if not len(keys.keys) and len(keys.doubted_keys):
        raise TooExpensiveError(TOO_MUCH_WORK)
    return bool(len(keys.keys))


class TreeItemSearch:
    """Searches one item for tree patterns. The item's trees are read on first use.

    >>> from runnel.algebra.nodes.calls import Variable
    >>> from runnel.algebra.trees.steps import Mark, NameTest, Step
    >>> search = TreeItemSearch({"tree": (DocumentTree.read("<news><tag>ski</tag></news>"),)})
    >>> search.found(TreePattern(Step("//", NameTest("tag"), (Mark("val", Variable("x")),)))).solutions
    ({'x': '"ski"'},)
    """

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes

    @cached_property
    def _columns(self) -> ItemColumns:
        return ItemColumns(ItemBatch.of([Item("item", "item", self._attributes)], {"item": 1}))

    @cached_property
    def _trees(self) -> list[TreeNodes]:
        values = self._attributes.get(TREE, ())
        return [nodes_of(value) for value in values if isinstance(value, DocumentTree)]

    def holds(self, pattern: ItemPattern) -> bool | None:
        """Return whether a pattern holds, or None if the search was abandoned."""
        try:
            return tree_holds(cast(TreePattern, pattern), self._columns, 0)
        except TooExpensiveError:
            return None

    def solutions(self, pattern: ItemPattern) -> Iterator[Solution]:
        """Yield the solutions of a pattern, until the search takes too many steps."""
        with suppress(TooExpensiveError):
            for nodes in self._trees:
                yield from solve(cast(TreePattern, pattern).condition, nodes)

    def found(self, pattern: ItemPattern) -> FoundSolutions:
        """Return the solutions of a pattern within the limits."""
        sets = [first_solutions(cast(TreePattern, pattern), nodes) for nodes in self._trees]
        solutions = tuple(solution for found, _ in sets for solution in found)
        return FoundSolutions(solutions, all(is_whole for _, is_whole in sets))


@lru_cache(maxsize=1024)
def _matcher(pattern: TreePattern) -> TreePart:
    return TreePart(TreeLayout.of([pattern]), np.zeros(1, dtype=np.int64))
