"""The trees of a batch as node arrays, with the plan's numbers for labels, namespaces and texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.arrays import Array
from runnel.families import registry
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.trees.step_programs import label_of
from runnel.matching.trees.tree_kernel import NodeArrays
from runnel.matching.trees.tree_layout import TreeLayout
from runnel.model.trees.document_tree import TREE, DocumentTree
from runnel.model.trees.tree_nodes import TreeNodes, nodes_of


def trees_in(columns: ItemColumns) -> tuple[Array, Array]:
    """Return the rows and the positions of the trees of a batch, in the order of rows."""
    positions = columns.names.get(TREE, np.empty(0, dtype=np.int64))
    positions = positions[columns.kinds[positions] == registry().kinds[TREE].code]
    return columns.value_rows[positions], positions


def read_trees(columns: ItemColumns, positions: Array) -> Iterator[TreeNodes]:
    """Yield the nodes of the trees at these positions."""
    return (nodes_of(DocumentTree(text)) for text in columns.text_array.take(positions).to_pylist())


@dataclass(frozen=True)
class NodeReader:
    """Converts the nodes of trees to arrays for the patterns of a layout."""

    layout: TreeLayout

    @cached_property
    def _labels(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.layout.labels.texts())}

    @cached_property
    def _namespaces(self) -> dict[str, int]:
        return {namespace: number for number, namespace in enumerate(self.layout.namespaces.texts())}

    @cached_property
    def _texts(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.layout.texts.texts())}

    def read(self, nodes: TreeNodes) -> NodeArrays:
        """Return the arrays of a tree. Values are only read for nodes that a pattern compares."""
        find = self._labels.get
        names = zip(nodes.names, nodes.attributes, strict=True)
        labels = np.array([find(label_of(name, is_attribute=each), -1) for name, each in names], dtype=np.int32)
        attributes = np.array(nodes.attributes, dtype=np.uint8)
        texts, numbers = self._values(nodes, labels, attributes)
        order = np.argsort(labels, kind="stable").astype(np.int32)
        return NodeArrays(
            labels=labels,
            namespaces=np.array([self._namespaces.get(each, -1) for each in nodes.namespaces], dtype=np.int32),
            attributes=attributes,
            parents=np.array(nodes.parents, dtype=np.int32),
            ends=np.array(nodes.ends, dtype=np.int32),
            texts=texts,
            numbers=numbers,
            order=order,
            sorted_labels=labels[order],
        )

    def _values(self, nodes: TreeNodes, labels: Array, attributes: Array) -> tuple[Array, Array]:
        """Return the number of the text of every compared node, or -1, and its number, or NaN."""
        compared, all_elements, all_attributes = self.layout.compared_labels
        is_compared = np.zeros(len(labels), dtype=np.bool_)
        is_compared[labels >= 0] = compared[labels[labels >= 0]]
        is_compared |= np.where(attributes, all_attributes, all_elements)
        texts, numbers = np.full(len(labels), -1, dtype=np.int32), np.full(len(labels), np.nan)
        for node in np.flatnonzero(is_compared).tolist():
            texts[node] = self._texts.get(nodes.text(node), -1)
            number = nodes.number(node) if len(self.layout.numbers) else None
            if number is not None:
                numbers[node] = number
        return texts, numbers
