"""Find the solutions of patterns in graphs, as rows of term numbers, for the bindings of matches.

In: pairs of a graph and a pattern, by their indexes in `Publications` and in a layout's table. Out: the solutions of
every pair, up to a maximum. `GraphPart.solutions` is the interface for plans: it takes rows of a batch and atoms of
the plan, and returns terms as texts. The columns of a solution are the variables of the canonical pattern in their
order, so column 0 is the variable named 1. `Graph.names` has the original names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, read_only
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import Code
from runnel.matching.graphs.search.compare_terms import program_holds
from runnel.matching.graphs.search.graph_matcher import compares_texts
from runnel.matching.graphs.search.publications import Publications
from runnel.matching.graphs.search.search import EXHAUSTED, FOUND, NONE, advance, begin_graph, end_graph, go_back
from runnel.matching.graphs.search.search_arrays import (
    GraphArrays,
    PatternArrays,
    Search,
    graph_arrays,
    pattern_arrays,
    search_over,
)

MAX_SOLUTIONS = 300
"""Maximum number of solutions that are returned per pattern and graph."""
STEPS_OF_PAIR, STEPS_OF_GRAPH = 200_000, 3_000_000
"""Maximum number of triples that are read for one pattern in a graph, and for all patterns in a graph."""

_ALL = np.uint32(0xFFFFFFFF)
_AND = int(Code.AND)


@dataclass(frozen=True)
class Solutions:
    """The solutions of pairs.

    Pair i has `counts[i]` solutions; `is_whole[i]` means that there are no more. The terms of its solutions begin at
    `starts[i]`, `widths[i]` per solution.
    """

    counts: Array
    is_whole: Array
    starts: Array
    widths: Array
    terms: Array

    def rows(self, pair: int) -> Array:
        """Return the solutions of a pair, one per row, with a column per variable."""
        start, count, width = int(self.starts[pair]), int(self.counts[pair]), int(self.widths[pair])
        return self.terms[start : start + count * width].reshape(count, width)


def solutions_of(
    layout: GraphLayout,
    publications: Publications,
    places: Array,
    patterns: Array,
    *,
    named: Array | None = None,
    most: int = MAX_SOLUTIONS,
    steps: int = STEPS_OF_PAIR,
    steps_of_graph: int = STEPS_OF_GRAPH,
) -> Solutions:
    """Return at most `most` solutions of each pair of a publication (by `places`) and a pattern.

    `named` are the variables of interest, as bits: solutions that differ only in other variables are returned once.
    The solutions of a pair are incomplete if its search exceeds `steps`, or the searches in its graph exceed
    `steps_of_graph`.
    """
    table = layout.table
    ordered = pattern_arrays(table)
    search = search_over(table, len(layout.terms))
    shapes, widths = read_only(table.pattern_shapes), table.shape_variables[table.pattern_shapes[patterns]]
    counts, is_whole = np.zeros(len(places), dtype=np.int64), np.zeros(len(places), dtype=np.bool_)
    order = np.argsort(places, kind="stable")
    graphs = graph_arrays(publications, ordered=compares_texts(table))
    pairs = places[order].astype(np.int64), patterns[order].astype(np.int64), widths[order].astype(np.int64)
    wanted = np.full(len(places), _ALL, dtype=np.uint32) if named is None else named[order].astype(np.uint32)
    limits = np.array([most, steps, steps_of_graph], dtype=np.int64)
    sorted_counts, sorted_is_whole = np.zeros_like(counts), np.zeros_like(is_whole)
    terms = find_solutions(graphs, ordered, search, shapes, *pairs, wanted, limits, sorted_counts, sorted_is_whole)
    counts[order], is_whole[order] = sorted_counts, sorted_is_whole
    sizes = sorted_counts * pairs[2]
    starts = np.empty(len(places), dtype=np.int64)
    starts[order] = np.cumsum(sizes) - sizes
    return Solutions(counts, is_whole, starts, widths.astype(np.int64), terms)


@step
def _filtered_variables(
    pattern: Number, constraint_offsets: Array, constraints: Array, program_offsets: Array, programs: Array
) -> Number:
    """Return the variables that occur in the filter of a pattern, as bits."""
    filtered = np.uint32(0)
    for start in range(constraint_offsets[pattern], constraint_offsets[pattern + 1], 3):
        filtered |= np.uint32(1) << np.uint32(constraints[start])
    position = np.int64(program_offsets[pattern])
    while position < program_offsets[pattern + 1]:
        if programs[position] < _AND:
            for node in programs[position + 1 : position + 3]:
                if node < 0:
                    filtered |= np.uint32(1) << np.uint32(-1 - node)
            position += 3
        else:
            position += 1
    return filtered


@step
def _depth(first: Number, count: Number, edges: Array, wanted: Number) -> Number:
    """Return the number of leading levels of a shape that are necessary to bind the wanted variables."""
    depth, bound = np.int64(0), np.uint32(0)
    for level in range(count):
        for part in range(3):
            node = edges[first + 3 * level + part]
            if node < 0:
                bit = np.uint32(1) << np.uint32(-1 - node)
                if bit & wanted and not bit & bound:
                    depth = np.int64(level + 1)
                bound |= bit
    return depth


@kernel
def find_solutions(
    graphs: GraphArrays,
    patterns: PatternArrays,
    search: Search,
    shapes: Array,
    places: Array,
    numbers: Array,
    widths: Array,
    named: Array,
    limits: Array,
    counts: Array,
    is_whole: Array,
) -> Array:
    """Return the terms of all solutions of pairs. Fill in the number of solutions and whether they are complete."""
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
        if pair == 0 or places[pair] != places[pair - 1]:
            steps[1] = limits[2]
        allowed = min(limits[1], steps[1])
        steps[0] = allowed
        filtered = _filtered_variables(pattern, constraint_offsets, constraints, program_offsets, programs)
        filter_depth = _depth(first, count, edges, filtered)
        solution_depth = _depth(first, count, edges, filtered | named[pair])
        level, is_open, status = np.int64(0), False, NONE
        while level >= 0:
            status = advance(
                level, is_open, first, count, pattern, low, high, edges, constraint_offsets, constraints, subjects,
                labels, objects, by_object, sorts, values, bound, levels, label_ranges, steps,
            )  # fmt: skip
            level, is_open = np.int64(-1), True
            if status != FOUND:
                continue
            if not program_holds(pattern, program_offsets, programs, sorts, values, bound, stack):
                # Backtrack to the last variable of the filter: other variables do not change the filter's result.
                level = filter_depth - 1
                go_back(level, first, count, edges, bound, levels)
                continue
            if counts[pair] == limits[0]:
                status = EXHAUSTED
                continue
            while size + width > len(terms):
                terms = np.append(terms, terms)
            for variable in range(width):
                terms[size + variable] = bound[variable]
            size += width
            counts[pair] += 1
            level = solution_depth - 1
            go_back(level, first, count, edges, bound, levels)
        is_whole[pair] = status != EXHAUSTED
        steps[1] -= allowed - max(steps[0], 0)
        go_back(-1, first, count, edges, bound, levels)
        end_graph(low, high, labels, label_ranges)
    return terms[:size].copy()
