"""Tree patterns as a condition family: the index that `patterns.contract` requires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.arrays import Array, Arrays
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.trees.match_single import TOO_MUCH_WORK, TreeItemSearch, tree_holds
from runnel.matching.trees.step_programs import label_of
from runnel.matching.trees.tree_layout import TreeLayout, feature_word
from runnel.matching.trees.tree_part import TreePart
from runnel.model.item import Attributes, Value
from runnel.model.trees.document_tree import DocumentTree
from runnel.model.trees.tree_nodes import TreeNodes, nodes_of

_MAX_NODES = 500
"""Maximum number of nodes per tree whose labels and texts are counted."""

_MAX_TEXT = 40
"""Maximum number of characters of a text that is counted."""


class TreeIndex:
    """The index of tree patterns."""

    undecided = TOO_MUCH_WORK

    def compute_layout(
        self, patterns: Sequence[ItemPattern], keys: Array, frequencies: Mapping[str, float] | None
    ) -> TreeLayout:
        """Build the arrays of patterns. Frequencies of labels and texts determine the features that find patterns."""
        return TreeLayout.of(cast(Sequence[TreePattern], patterns), keys, frequencies)

    def stored(self, arrays: Arrays, keys: int) -> TreeLayout | None:
        """Read and check the layout in the arrays of a plan part. Return None if the part has no tree patterns."""
        return TreeLayout.stored(arrays, keys) if TreeLayout.is_stored(arrays) else None

    def matcher(self, layout: TreeLayout, atom_keys: Array) -> TreePart:
        """Return the matcher of a layout."""
        return TreePart(layout, atom_keys)

    def holds(self, pattern: ItemPattern, columns: ItemColumns, row: int) -> bool:
        """Return whether the item in a row of a batch matches a pattern."""
        return tree_holds(cast(TreePattern, pattern), columns, row)

    def search(self, attributes: Attributes) -> TreeItemSearch:
        """Return a search for patterns in one item."""
        return TreeItemSearch(attributes)

    def words(self, values: Sequence[Value]) -> Iterable[str]:
        """Return the labels of the first nodes of trees, and the labels of leaves with their texts."""
        return {word for value in values if isinstance(value, DocumentTree) for word in _words(nodes_of(value))}


def _words(nodes: TreeNodes) -> Iterable[str]:
    for node in range(min(len(nodes), _MAX_NODES)):
        label = label_of(nodes.names[node], is_attribute=nodes.attributes[node])
        yield feature_word(label)
        if nodes.is_leaf(node) and nodes.length(node) <= _MAX_TEXT:
            yield feature_word(label, nodes.text(node))


TREE_INDEX = TreeIndex()
