"""The union graph of all patterns: for every different edge the patterns that have it (the paper's §4.1).

In: a table of patterns. Out: a hash table from edges, in which a variable is a star, to lists of patterns. A list is
cut into *segments* by the constraint that a pattern has on a variable of the edge: the constraint tables, each in
the order of its bounds. Without constraint tables every list is one segment.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import IDENTIFIER, Array, Rows, row_offsets
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.papers.graphs.join_edges import Laid

STAR = -1
"""In place of a variable in an edge."""

ANY = 6
"""In place of the relation of a segment whose patterns are all taken."""

BITS = 63
"""Edges of a pattern that are told apart while they are counted; further ones share their bits."""

_EMPTY = -1
_CHOSEN_FIRST = np.array([0, 4, 2, 2, 2, 2], dtype=np.int64)
"""Which constraint of an edge a pattern is listed under: an equality, else a range, else an inequality."""


class UnionGraph(NamedTuple):
    """Edges by number, found through `slots`; their segments; the patterns of these with their edges' bits.

    Edge i is subject, label and object in `edges[i]`, and has the segments from `edge_segments[i]` on; segment j is
    about part `parts[j]` of the edge, a relation and bounds of one sort, and has the entries from `segments[j]` on.
    `masks` says which parts are stars in some edge.
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
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self)


def unite(table: PatternTable, terms: TermIndex, laid: Laid, *, constraint_tables: bool) -> UnionGraph:
    """The union graph of all patterns."""
    stars = np.maximum(laid.nodes, STAR)
    different, numbers = np.unique(stars, axis=0, return_inverse=True)
    every_edge = Rows(laid.offsets, np.arange(len(stars), dtype=IDENTIFIER))
    owners, edges = every_edge.expand(table.pattern_shapes)
    bits = (edges - laid.offsets[table.pattern_shapes[owners]]) % BITS
    parts = np.zeros(len(owners), dtype=np.int8)
    relations = np.full(len(owners), ANY, dtype=np.int8)
    sorts = np.zeros(len(owners), dtype=np.uint8)
    bounds = np.zeros(len(owners), dtype=np.float64)
    if constraint_tables:
        values = bound_values(terms)
        places = choose_constraints(owners, edges, laid, values, parts)
        listed = np.flatnonzero(places >= 0)
        chosen = laid.constraints[places[listed]]
        relations[listed] = chosen[:, 1]
        sorts[listed], bounds[listed] = terms.sorts[chosen[:, 2]], values[chosen[:, 2]]
    keys: list[Array] = [numbers.reshape(-1)[edges], parts, relations, sorts]
    order = np.lexsort((bounds, *reversed(keys)))
    keys = [key[order] for key in keys]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    starts = np.flatnonzero(begins)
    found_masks = np.unique((different == STAR) @ np.array([1, 2, 4])) if len(different) else np.empty(0, np.int64)
    return UnionGraph(
        slots=_slots(different),
        edges=different.astype(IDENTIFIER),
        edge_segments=row_offsets(np.bincount(keys[0][starts], minlength=len(different))),
        segments=np.append(starts, len(order)).astype(IDENTIFIER),
        parts=keys[1][starts],
        relations=keys[2][starts],
        sorts=keys[3][starts],
        bounds=bounds[order],
        patterns=owners[order].astype(IDENTIFIER),
        bits=bits[order].astype(np.int8),
        masks=found_masks,
    )


def bound_values(terms: TermIndex) -> Array:
    """By what terms are in order among those of their sort: their key, for texts their rank, for others a number."""
    return values_of(terms.sorts, terms.keys, terms.ranks)


@kernel
def values_of(sorts: Array, keys: Array, ranks: Array) -> Array:
    """As `bound_values`."""
    found = np.empty(len(sorts), dtype=np.float64)
    for term in range(len(sorts)):
        found[term] = value_of(term, sorts, keys, ranks)
    return found


@step
def value_of(term: Number, sorts: Array, keys: Array, ranks: Array) -> Number:
    """By what a term is in order among those of its sort."""
    if sorts[term] == _TEXT:
        return float(ranks[term])
    return keys[term] if sorts[term] > _TEXT else float(term)


_TEXT = int(Sort.TEXT)


@kernel
def choose_constraints(owners: Array, edges: Array, laid: Laid, values: Array, parts: Array) -> Array:
    """For every pattern and edge the constraint that it is listed under, or -1, and in `parts` what it is about."""
    _, nodes, _, constraint_offsets, constraints = laid
    found = np.full(len(owners), -1, dtype=np.int64)
    for entry in range(len(owners)):
        best = 9
        for part in range(3):
            node = nodes[edges[entry], part]
            if node >= 0:
                continue
            for place in range(constraint_offsets[owners[entry]], constraint_offsets[owners[entry] + 1]):
                # What is not a number has no place among bounds: it is left to the join.
                if constraints[place, 0] == -1 - node and not np.isnan(values[constraints[place, 2]]):
                    rank = _CHOSEN_FIRST[constraints[place, 1]]
                    if rank < best:
                        best, found[entry], parts[entry] = rank, place, part
    return found


def _slots(edges: Array) -> Array:
    slots = np.full(1 << max(4, (2 * len(edges)).bit_length()), _EMPTY, dtype=IDENTIFIER)
    fill_slots(slots, edges)
    return slots


@kernel
def fill_slots(slots: Array, edges: Array) -> None:
    """Give every edge a slot."""
    for edge in range(len(edges)):
        slot = slot_of(edges[edge, 0], edges[edge, 1], edges[edge, 2], len(slots) - 1)
        while slots[slot] != _EMPTY:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = edge


@step
def slot_of(subject: Number, label: Number, found: Number, mask: Number) -> Number:
    """Where to look for an edge first."""
    mixed = (np.uint64(subject + 1) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(label + 1)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = ((mixed ^ (mixed >> np.uint64(32))) + np.uint64(found + 1)) * np.uint64(0x94D049BB133111EB)
    return np.int64(mixed >> np.uint64(33)) & mask


@step
def find_edge(subject: Number, label: Number, found: Number, slots: Array, edges: Array) -> Number:
    """The number of an edge, or -1."""
    slot = slot_of(subject, label, found, len(slots) - 1)
    while slots[slot] != _EMPTY:
        edge = np.int64(slots[slot])
        if edges[edge, 0] == subject and edges[edge, 1] == label and edges[edge, 2] == found:
            return edge
        slot = (slot + 1) & (len(slots) - 1)
    return np.int64(-1)
