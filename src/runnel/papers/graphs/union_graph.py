"""The union graph of all patterns: the patterns that have each distinct edge (the paper's §4.1).

In: a table of patterns. Out: a hash table from edges, in which a star replaces each variable, to lists of patterns. A
list is divided into *segments* by the constraint that a pattern has on a variable of the edge. These are the paper's
constraint tables, each sorted by its bounds. Without constraint tables every list is one segment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import IDENTIFIER, Array, Rows, row_offsets
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.papers.graphs.join_edges import JoinOrders

STAR = -1
"""Replaces a variable in an edge."""

ANY = 6
"""The relation of a segment whose patterns have no constraint that is checked while counting."""

BITS = 63
"""The number of edges of a pattern that have bits of their own while they are counted. Further edges share bits."""

_EMPTY = -1
_RELATION_RANKS = np.array([0, 4, 2, 2, 2, 2], dtype=np.int64)
"""The rank of each relation when a pattern's segment is chosen: equality, then ranges, then inequality."""


class UnionGraph(NamedTuple):
    """Edges by number, found through `slots`, their segments, and the patterns of these with the bits of the edges.

    Edge i has its subject, label and object in `edges[i]`, and the segments from `edge_segments[i]` to
    `edge_segments[i + 1]`. Segment j constrains part `parts[j]` of the edge by one relation to bounds of one sort.
    Its entries are those from `segments[j]` to `segments[j + 1]`. `masks` has the combinations of starred parts that
    occur.
    """

    slots: Array
    edges: Array
    edge_segments: Array
    segments: Array
    parts: Array
    relations: Array
    sorts: Array
    bounds: Array
    patterns: Array
    bits: Array
    masks: Array

    @property
    def size(self) -> int:
        """The size in bytes of all arrays."""
        return sum(array.nbytes for array in self)


def build_union_graph(
    table: PatternTable, terms: TermIndex, orders: JoinOrders, *, constraint_tables: bool
) -> UnionGraph:
    """Build the union graph of all patterns."""
    stars = np.maximum(orders.nodes, STAR)
    distinct_edges, numbers = np.unique(stars, axis=0, return_inverse=True)
    shape_edges = Rows(orders.offsets, np.arange(len(stars), dtype=IDENTIFIER))
    owners, edges = shape_edges.expand(table.pattern_shapes)
    bits = (edges - orders.offsets[table.pattern_shapes[owners]]) % BITS
    parts = np.zeros(len(owners), dtype=np.int8)
    relations = np.full(len(owners), ANY, dtype=np.int8)
    sorts = np.zeros(len(owners), dtype=np.uint8)
    bounds = np.zeros(len(owners), dtype=np.float64)
    if constraint_tables:
        values = bound_values(terms)
        constraint_numbers = choose_constraints(owners, edges, orders, values, parts)
        listed = np.flatnonzero(constraint_numbers >= 0)
        chosen = orders.constraints[constraint_numbers[listed]]
        relations[listed] = chosen[:, 1]
        sorts[listed], bounds[listed] = terms.sorts[chosen[:, 2]], values[chosen[:, 2]]
    keys: list[Array] = [numbers.reshape(-1)[edges], parts, relations, sorts]
    order = np.lexsort((bounds, *reversed(keys)))
    keys = [key[order] for key in keys]
    is_start = np.ones(len(order), dtype=np.bool_)
    is_start[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    starts = np.flatnonzero(is_start)
    masks = (
        np.unique((distinct_edges == STAR) @ np.array([1, 2, 4])) if len(distinct_edges) else np.empty(0, np.int64)
    )
    return UnionGraph(
        slots=_slots(distinct_edges),
        edges=distinct_edges.astype(IDENTIFIER),
        edge_segments=row_offsets(np.bincount(keys[0][starts], minlength=len(distinct_edges))),
        segments=np.append(starts, len(order)).astype(IDENTIFIER),
        parts=keys[1][starts],
        relations=keys[2][starts],
        sorts=keys[3][starts],
        bounds=bounds[order],
        patterns=owners[order].astype(IDENTIFIER),
        bits=bits[order].astype(np.int8),
        masks=masks,
    )


def bound_values(terms: TermIndex) -> Array:
    """Return the values that order the terms of a sort: ranks of texts, keys of numbers, else the terms' numbers."""
    return values_of(terms.sorts, terms.keys, terms.ranks)


@kernel
def values_of(sorts: Array, keys: Array, ranks: Array) -> Array:
    """Return the same as `bound_values`, from arrays."""
    values = np.empty(len(sorts), dtype=np.float64)
    for term in range(len(sorts)):
        values[term] = value_of(term, sorts, keys, ranks)
    return values


@step
def value_of(term: Number, sorts: Array, keys: Array, ranks: Array) -> Number:
    """Return the value that orders a term among those of its sort."""
    if sorts[term] == _TEXT:
        return float(ranks[term])
    return keys[term] if sorts[term] > _TEXT else float(term)


_TEXT = int(Sort.TEXT)


@kernel
def choose_constraints(owners: Array, edges: Array, orders: JoinOrders, values: Array, parts: Array) -> Array:
    """Return the constraint whose segment lists each pattern and edge, or -1. Set `parts` to the constrained part."""
    _, nodes, _, constraint_offsets, constraints = orders
    chosen = np.full(len(owners), -1, dtype=np.int64)
    for entry in range(len(owners)):
        best = 9
        for part in range(3):
            node = nodes[edges[entry], part]
            if node >= 0:
                continue
            for constraint in range(constraint_offsets[owners[entry]], constraint_offsets[owners[entry] + 1]):
                # NaN cannot be sorted among bounds. The join checks it.
                if constraints[constraint, 0] == -1 - node and not np.isnan(values[constraints[constraint, 2]]):
                    rank = _RELATION_RANKS[constraints[constraint, 1]]
                    if rank < best:
                        best, chosen[entry], parts[entry] = rank, constraint, part
    return chosen


def _slots(edges: Array) -> Array:
    slots = np.full(1 << max(4, (2 * len(edges)).bit_length()), _EMPTY, dtype=IDENTIFIER)
    fill_slots(slots, edges)
    return slots


@kernel
def fill_slots(slots: Array, edges: Array) -> None:
    """Assign a slot to every edge."""
    for edge in range(len(edges)):
        slot = slot_of(edges[edge, 0], edges[edge, 1], edges[edge, 2], len(slots) - 1)
        while slots[slot] != _EMPTY:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = edge


@step
def slot_of(subject: Number, label: Number, value: Number, mask: Number) -> Number:
    """Return the first slot to probe for an edge."""
    mixed = (np.uint64(subject + 1) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(label + 1)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = ((mixed ^ (mixed >> np.uint64(32))) + np.uint64(value + 1)) * np.uint64(0x94D049BB133111EB)
    return np.int64(mixed >> np.uint64(33)) & mask


@step
def find_edge(subject: Number, label: Number, value: Number, slots: Array, edges: Array) -> Number:
    """Return the number of an edge, or -1."""
    slot = slot_of(subject, label, value, len(slots) - 1)
    while slots[slot] != _EMPTY:
        edge = np.int64(slots[slot])
        if edges[edge, 0] == subject and edges[edge, 1] == label and edges[edge, 2] == value:
            return edge
        slot = (slot + 1) & (len(slots) - 1)
    return np.int64(-1)
