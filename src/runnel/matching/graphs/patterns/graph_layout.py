"""The arrays of a plan part's graph patterns, which are built at compile time and mapped by every worker.

In: patterns. Out: a `GraphLayout` with the table of patterns in the order of their constraint lists, an index of
shapes by their rarest edge, and the external key of each pattern. The index is a hash table whose slots refer to
*buckets*. The first edges of the shapes of a bucket have the same terms, and variables at the same positions. The
terms themselves are compared, so hash collisions cannot lead to wrong matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Arrays, Rows
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.constraint_lists import ConstraintLists, list_constraints
from runnel.matching.graphs.patterns.edge_orders import edge_keys, order_edges
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex

_EMPTY = -1
_NAME, _INDEX, _TERMS = "graphs", "graphs.index", "graph_terms"


@dataclass(frozen=True)
class GraphLayout:
    """The arrays. `depths` comes from `edge_orders`, and `masks` contains which kinds of first edges occur.

    A kind is a sum of bits: 1 if the subject is a term, 2 if the label is a term, and 4 if the object is a term.
    """

    table: PatternTable
    terms: TermIndex
    lists: ConstraintLists
    depths: Array
    slots: Array
    buckets: Rows
    masks: Array
    keys: Array

    def __len__(self) -> int:
        return len(self.table)

    @staticmethod
    def of(
        table: PatternTable, frequencies: Mapping[str, float] | None = None, keys: Array | None = None
    ) -> GraphLayout:
        """Build the layout of a table's patterns. By default, the key of a pattern is its number in the table."""
        edges, depths = order_edges(table, frequencies)
        with_ordered_edges = replace(table, shape_edges=Rows(table.shape_edges.offsets, edges.reshape(-1)))
        table, shape_order = _sort_shapes(with_ordered_edges)
        depths = depths[shape_order]
        terms = TermIndex.of(table)
        order, lists = list_constraints(table, terms.ranks)
        ordered = _sort_patterns(table, order)
        access = _first_edges(ordered)
        buckets, slots = _index(access)
        kinds = (access >= 0) @ np.array([1, 2, 4])
        numbers = np.arange(len(table)) if keys is None else keys
        return GraphLayout(
            table=ordered,
            terms=terms,
            lists=lists,
            depths=depths,
            slots=slots,
            buckets=buckets,
            masks=np.isin(np.arange(8), kinds).astype(np.uint8),
            keys=numbers[order].astype(IDENTIFIER),
        )

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that are read for every item, by the names under which they are stored."""
        arrays = self.table.arrays(_NAME) | self.terms.arrays(_TERMS) | self.lists.arrays(f"{_NAME}.lists")
        arrays |= {f"{_INDEX}.{field}": getattr(self, field) for field in _PLAIN}
        arrays |= self.buckets.arrays(f"{_NAME}.buckets")
        return {name: array for name, array in arrays.items() if name not in self.seldom()}

    def seldom(self) -> dict[str, Array]:
        """Return the arrays that are read only for bindings."""
        return self.table.terms.arrays(f"{_NAME}.terms")

    @staticmethod
    def stored(arrays: Arrays) -> GraphLayout:
        """Build the layout from the arrays of `arrays` and `seldom`."""
        return GraphLayout(
            table=PatternTable.stored(arrays, _NAME),
            terms=TermIndex.stored(arrays, _TERMS),
            lists=ConstraintLists.stored(arrays, f"{_NAME}.lists"),
            buckets=Rows.stored(arrays, f"{_NAME}.buckets"),
            **{field: arrays[f"{_INDEX}.{field}"] for field in _PLAIN},
        )

    @property
    def counters(self) -> dict[str, int]:
        """The numbers of patterns and shapes."""
        return {"graph patterns": len(self), "graph shapes": len(self.table.shape_edges)}

    @staticmethod
    def is_stored(arrays: Arrays) -> bool:
        """Return whether the arrays contain graph patterns in this format."""
        return f"{_INDEX}.depths" in arrays


_PLAIN = ("depths", "slots", "masks", "keys")


def _first_edges(table: PatternTable) -> Array:
    """Return the first edge of every shape, under which the shape is indexed."""
    return np.asarray(table.shape_edges.values.reshape(-1, 3)[table.shape_edges.offsets[:-1] // 3])


def _sort_shapes(table: PatternTable) -> tuple[PatternTable, Array]:
    """Return the table sorted by bucket, because the shapes of a bucket are read together, and the shapes' order."""
    order = np.argsort(edge_keys(_first_edges(table)), kind="stable")
    positions = np.empty(len(order), dtype=IDENTIFIER)
    positions[order] = np.arange(len(order))
    owners, values = table.shape_edges.expand(order)
    sorted_table = replace(
        table,
        shape_edges=Rows.grouped(owners, values, len(order)),
        shape_variables=table.shape_variables[order],
        pattern_shapes=positions[table.pattern_shapes],
    )
    return sorted_table, order


def _sort_patterns(table: PatternTable, order: Array) -> PatternTable:
    """Return the table with its patterns in a given order."""

    def sort_rows(rows: Rows) -> Rows:
        owners, values = rows.expand(order)
        return Rows.grouped(owners, values, len(order))

    return replace(
        table,
        pattern_shapes=table.pattern_shapes[order],
        constraints=sort_rows(table.constraints),
        programs=sort_rows(table.programs),
    )


def _no_edges() -> Array:
    return np.empty((0, 3), dtype=IDENTIFIER)


def _index(access: Array) -> tuple[Rows, Array]:
    """Return the shapes of every bucket, and the hash table of buckets. `access` is the first edge of every shape."""
    keys = edge_keys(access)
    count = int(keys.max(initial=-1)) + 1
    buckets = Rows.grouped(keys, np.arange(len(access), dtype=IDENTIFIER), count)
    slots = np.full(1 << max(3, (count + count // 2).bit_length()), _EMPTY, dtype=IDENTIFIER)
    leaders = access[buckets.values[buckets.offsets[:-1]]] if count else _no_edges()
    fill_slots(np.ascontiguousarray(np.maximum(leaders, -1)), slots)
    return buckets, slots


@step
def hash_edge(subject: Number, label: Number, object_: Number) -> Number:
    """Return the hash of an edge's terms, with -1 for variables."""
    mixed = np.uint64(subject + 1) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(label + 1) * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= np.uint64(object_ + 1) * np.uint64(0x165667B19E3779F9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed >> np.uint64(32)


@kernel
def fill_slots(leaders: Array, slots: Array) -> None:
    """Insert every bucket into the hash table, under the terms of its shapes' first edges."""
    mask = np.uint64(len(slots) - 1)
    for bucket in range(len(leaders)):
        slot = hash_edge(leaders[bucket, 0], leaders[bucket, 1], leaders[bucket, 2]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = bucket
