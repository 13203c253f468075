"""The arguments of the search kernels as named tuples of arrays, which a kernel unpacks before its first loop.

In: a table of patterns, and the graphs of a batch. Out: their arrays. Arrays of the plan are read-only, so that
kernels are compiled only once for mapped files and for arrays in memory.
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
"""Graphs with at most this number of triples are scanned if only the object of an edge is known."""

FREE = -1
"""The value of an unbound variable."""

PLACE, END, FRESH, THROUGH = 0, 1, 2, 3
"""The columns of a level: next triple, end of the triples, newly bound variables, and whether `by_object` is used."""


class PatternArrays(NamedTuple):
    """Shapes and patterns (see `pattern_table`). The edges of a shape have the order of the search."""

    edge_offsets: Array
    edges: Array
    constraint_offsets: Array
    constraints: Array
    program_offsets: Array
    programs: Array


class GraphArrays(NamedTuple):
    """The graphs of a batch (see `publications`).

    `by_object` are the triples of large graphs, sorted by label, object and subject. `values` are the numbers by
    which terms of the same sort are compared.
    """

    offsets: Array
    subjects: Array
    labels: Array
    objects: Array
    by_object: Array
    sorts: Array
    values: Array


class Search(NamedTuple):
    """The state of a search: the terms of variables, the levels, the stack of a program, and the remaining steps.

    `label_ranges` has, for each term of the plan, the range of triples with this label in the current graph. `steps`
    are the remaining steps for the shape and for the graph.
    """

    bound: Array
    levels: Array
    stack: Array
    label_ranges: Array
    steps: Array


def pattern_arrays(table: PatternTable) -> PatternArrays:
    """Return the arrays of a table."""
    return PatternArrays(
        read_only(table.shape_edges.offsets),
        read_only(table.shape_edges.values),
        read_only(table.constraints.offsets),
        read_only(table.constraints.values),
        read_only(table.programs.offsets),
        read_only(table.programs.values),
    )


def graph_arrays(publications: Publications, *, ordered: bool) -> GraphArrays:
    """Return the arrays of a batch. With `ordered`, texts of the batch can be compared with each other, too."""
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
    """Return the initial state of a search for the patterns of a table with this number of terms."""
    return Search(
        bound=np.full(MAX_VARIABLES, FREE, dtype=np.int64),
        levels=np.zeros((int(table.shape_edges.lengths.max(initial=3)) // 3, 4), dtype=np.int64),
        stack=np.zeros(int(table.programs.lengths.max(initial=0)) + 1, dtype=np.uint8),
        label_ranges=np.zeros((terms, 2), dtype=np.int64),
        steps=np.zeros(2, dtype=np.int64),
    )


def _by_object(publications: Publications) -> Array:
    by_object = np.empty(len(publications.labels), dtype=np.int32)
    for number in np.flatnonzero(np.diff(publications.offsets) > FEW).tolist():
        first, last = publications.offsets[number : number + 2].tolist()
        columns = publications.subjects, publications.objects, publications.labels
        by_object[first:last] = first + np.lexsort(tuple(column[first:last] for column in columns))
    return by_object


def _values(publications: Publications, *, ordered: bool) -> Array:
    """Return the numbers by which terms are compared.

    Texts are compared by their ranks. With `ordered`, fractions order the texts of the batch that have the same rank.
    """
    sorts, first = publications.sorts, publications.plan_terms
    values = np.where(sorts > Sort.TEXT, publications.keys, np.arange(len(sorts)))
    texts = np.flatnonzero(sorts == Sort.TEXT)
    values[texts] = publications.ranks[texts]
    if ordered:
        batch_texts = texts[texts >= first].tolist()
        batch_texts.sort(key=lambda number: str(known_term(publications.local_term(number)).key))
        values[batch_texts] += (1 + np.arange(len(batch_texts))) / (2 + len(batch_texts))
    return values
