"""What kernels over graphs take, as named tuples of arrays; a kernel takes them apart before its first loop.

In: a table of patterns, the graphs of a batch. Out: the same, read-only where it is the plan's, so that kernels are
compiled once for mapped files and for what was just laid out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.algebra.graphs.edges import MAX_VARIABLES
from runnel.algebra.graphs.rdf_terms import Sort, known_term
from runnel.arrays import Array, read_only
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.search.publications import Publications

FEW = 128
"""Triples of a graph that are gone through where only the object of an edge is known."""

FREE = -1
"""What a variable stands for before it is bound."""

PLACE, END, FRESH, THROUGH = 0, 1, 2, 3
"""What is kept of a level: the next triple, where they end, what it bound, and if triples are by their objects."""


class PatternArrays(NamedTuple):
    """Shapes and patterns (see `pattern_table`), the edges of a shape in the order of the search."""

    edge_offsets: Array
    edges: Array
    constraint_offsets: Array
    constraints: Array
    program_offsets: Array
    programs: Array


class GraphArrays(NamedTuple):
    """The graphs of a batch (see `publications`).

    `by_object` are the triples of large graphs in the order of label, object and subject; `values` what terms of one
    sort are compared by.
    """

    offsets: Array
    subjects: Array
    labels: Array
    objects: Array
    by_object: Array
    sorts: Array
    values: Array


class Search(NamedTuple):
    """Where a search stands: the terms of variables, the levels, the stack of a program, and steps that are left.

    `label_ranges` are where the triples of each of the plan's terms as a label lie in the graph at hand. `steps` are
    those that are left for the shape, and for the graph.
    """

    bound: Array
    levels: Array
    stack: Array
    label_ranges: Array
    steps: Array


def pattern_arrays(table: PatternTable) -> PatternArrays:
    """The arrays of a table."""
    return PatternArrays(
        read_only(table.shape_edges.offsets),
        read_only(table.shape_edges.values),
        read_only(table.constraints.offsets),
        read_only(table.constraints.values),
        read_only(table.programs.offsets),
        read_only(table.programs.values),
    )


def graph_arrays(publications: Publications, *, ordered: bool) -> GraphArrays:
    """The arrays of a batch; `ordered` where texts of the batch are compared with one another by their order."""
    return GraphArrays(
        publications.offsets,
        publications.subjects,
        publications.labels,
        publications.objects,
        _by_object(publications),
        publications.sorts,
        _values(publications, ordered=ordered),
    )


def search_over(table: PatternTable, terms: int) -> Search:
    """A search for the patterns of a table whose terms are so many."""
    return Search(
        bound=np.full(MAX_VARIABLES, FREE, dtype=np.int64),
        levels=np.zeros((int(table.shape_edges.lengths.max(initial=3)) // 3, 4), dtype=np.int64),
        stack=np.zeros(int(table.programs.lengths.max(initial=0)) + 1, dtype=np.uint8),
        label_ranges=np.zeros((terms, 2), dtype=np.int64),
        steps=np.zeros(2, dtype=np.int64),
    )


def _by_object(publications: Publications) -> Array:
    found = np.empty(len(publications.labels), dtype=np.int32)
    for number in np.flatnonzero(np.diff(publications.offsets) > FEW).tolist():
        first, last = publications.offsets[number : number + 2].tolist()
        columns = publications.subjects, publications.objects, publications.labels
        found[first:last] = first + np.lexsort(tuple(column[first:last] for column in columns))
    return found


def _values(publications: Publications, *, ordered: bool) -> Array:
    """What terms are compared by; texts by their ranks, and those of the batch between the plan's by fractions."""
    sorts, first = publications.sorts, publications.plan_terms
    values = np.where(sorts > Sort.TEXT, publications.keys, np.arange(len(sorts)))
    texts = np.flatnonzero(sorts == Sort.TEXT)
    values[texts] = publications.ranks[texts]
    if ordered:
        own = texts[texts >= first].tolist()
        own.sort(key=lambda number: str(known_term(publications.local_term(number)).key))
        values[own] += (1 + np.arange(len(own))) / (2 + len(own))
    return values
