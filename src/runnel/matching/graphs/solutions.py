"""The solutions of patterns on graphs, as rows of term numbers: what bindings of matches are made of.

In: pairs of a publication and a pattern, by their places in `Publications` and in a layout's table. Out: for every
pair its solutions, at most so many. `GraphPart.solutions` is the door for plans: it takes rows of a batch and atoms
of the plan, and gives terms as texts. The columns of a solution are the pattern's variables in the order of the
canonical pattern (`Graph.names` says what they were called), so column 0 is the variable named 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.kernel import kernel
from runnel.matching.graphs.arrays import (
    GraphArrays,
    PatternArrays,
    Search,
    graph_arrays,
    pattern_arrays,
    search_over,
)
from runnel.matching.graphs.compare import program_holds
from runnel.matching.graphs.layout import GraphLayout
from runnel.matching.graphs.matcher import STEPS_OF_SHAPE, compares_texts
from runnel.matching.graphs.publications import Publications
from runnel.matching.graphs.search import EXHAUSTED, FOUND, NONE, advance, begin_graph, end_graph, go_back
from runnel.plan.arrays import Array, read_only


@dataclass(frozen=True)
class Solutions:
    """The solutions of some pairs.

    Pair i has `counts[i]` solutions that are told; `is_whole[i]` says that there are no more. The terms of a solution
    stand one after the other from `starts[i]` on, `widths[i]` of them.
    """

    counts: Array
    is_whole: Array
    starts: Array
    widths: Array
    terms: Array

    def rows(self, pair: int) -> Array:
        """The solutions of a pair: a row each, a column for every variable."""
        start, count, width = int(self.starts[pair]), int(self.counts[pair]), int(self.widths[pair])
        return self.terms[start : start + count * width].reshape(count, width)


def solutions_of(
    layout: GraphLayout,
    publications: Publications,
    places: Array,
    patterns: Array,
    *,
    most: int = 300,
    steps: int = STEPS_OF_SHAPE,
) -> Solutions:
    """The solutions of the patterns on the publications at these places, each pair's at most `most`.

    A pair whose search takes more than so many steps is not whole; what was found of it is told.
    """
    table = layout.table
    ordered = pattern_arrays(table)
    search = search_over(table, len(layout.terms))
    shapes, widths = read_only(table.pattern_shapes), table.shape_variables[table.pattern_shapes[patterns]]
    counts, is_whole = np.zeros(len(places), dtype=np.int64), np.zeros(len(places), dtype=np.bool_)
    order = np.argsort(places, kind="stable")
    graphs = graph_arrays(publications, ordered=compares_texts(table))
    pairs = places[order].astype(np.int64), patterns[order].astype(np.int64), widths[order].astype(np.int64)
    limits = np.array([most, steps], dtype=np.int64)
    told, whole = np.zeros_like(counts), np.zeros_like(is_whole)
    terms = find_solutions(graphs, ordered, search, shapes, *pairs, limits, told, whole)
    counts[order], is_whole[order] = told, whole
    sizes = told * pairs[2]
    starts = np.empty(len(places), dtype=np.int64)
    starts[order] = np.cumsum(sizes) - sizes
    return Solutions(counts, is_whole, starts, widths.astype(np.int64), terms)


@kernel
def find_solutions(
    graphs: GraphArrays,
    patterns: PatternArrays,
    search: Search,
    shapes: Array,
    places: Array,
    numbers: Array,
    widths: Array,
    limits: Array,
    counts: Array,
    is_whole: Array,
) -> Array:
    """The terms of all solutions of pairs; `counts` gets how many each has, `is_whole` if these are all."""
    (offsets, subjects, labels, objects, by_object, sorts, values) = graphs
    (edge_offsets, edges, constraint_offsets, constraints, program_offsets, programs) = patterns
    (bound, levels, stack, label_ranges, steps) = search
    terms = np.empty(1024, dtype=np.int32)
    size = 0
    for pair in range(len(places)):
        pattern, width = numbers[pair], widths[pair]
        low, high = offsets[places[pair]], offsets[places[pair] + 1]
        begin_graph(low, high, labels, label_ranges)
        first = edge_offsets[shapes[pattern]]
        count = (edge_offsets[shapes[pattern] + 1] - first) // 3
        steps[0] = limits[1]
        level, is_open, status = np.int64(0), False, NONE
        while level >= 0:
            status = advance(
                level, is_open, first, count, pattern, low, high, edges, constraint_offsets, constraints, subjects,
                labels, objects, by_object, sorts, values, bound, levels, label_ranges, steps,
            )  # fmt: skip
            level, is_open = np.int64(count - 1 if status == FOUND else -1), True
            if status != FOUND or not program_holds(pattern, program_offsets, programs, sorts, values, bound, stack):
                continue
            if counts[pair] == limits[0]:
                level, status = np.int64(-1), EXHAUSTED
                continue
            while size + width > len(terms):
                terms = np.append(terms, terms)
            for variable in range(width):
                terms[size + variable] = bound[variable]
            size += width
            counts[pair] += 1
        is_whole[pair] = status != EXHAUSTED
        go_back(-1, first, count, edges, bound, levels)
        end_graph(low, high, labels, label_ranges)
    return terms[:size].copy()
