"""The solutions of patterns on graphs, as rows of term numbers: what bindings of matches are made of.

In: pairs of a publication and a pattern, by their places in `Publications` and in a layout's table. Out: for every
pair its solutions, at most so many. `GraphPart.solutions` is the door for plans: it takes rows of a batch and atoms
of the plan, and gives terms as texts. The columns of a solution are the pattern's variables in the order of the
canonical pattern (`Graph.names` says what they were called), so column 0 is the variable named 1.
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

MOST_SOLUTIONS = 300
"""Solutions that are told of a pattern and a graph."""
STEPS_OF_PAIR, STEPS_OF_GRAPH = 200_000, 3_000_000
"""Triples that are looked at for the solutions of one pattern on a graph, and of all that match it."""

_ALL = np.uint32(0xFFFFFFFF)
_AND = int(Code.AND)


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
    named: Array | None = None,
    most: int = MOST_SOLUTIONS,
    steps: int = STEPS_OF_PAIR,
    steps_of_graph: int = STEPS_OF_GRAPH,
) -> Solutions:
    """The solutions of the patterns on the publications at these places, each pair's at most `most`.

    `named` are the variables, as bits, that somebody wants to know: of solutions that differ by others only one is
    told. A pair whose search takes more than so many steps, or whose graph has taken more, is not whole; what was
    found of it is told.
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
    told, whole = np.zeros_like(counts), np.zeros_like(is_whole)
    terms = find_solutions(graphs, ordered, search, shapes, *pairs, wanted, limits, told, whole)
    counts[order], is_whole[order] = told, whole
    sizes = told * pairs[2]
    starts = np.empty(len(places), dtype=np.int64)
    starts[order] = np.cumsum(sizes) - sizes
    return Solutions(counts, is_whole, starts, widths.astype(np.int64), terms)


@step
def _asked(
    pattern: Number, constraint_offsets: Array, constraints: Array, program_offsets: Array, programs: Array
) -> Number:
    """The variables that the filter of a pattern asks for, as bits."""
    asked = np.uint32(0)
    for spot in range(constraint_offsets[pattern], constraint_offsets[pattern + 1], 3):
        asked |= np.uint32(1) << np.uint32(constraints[spot])
    place = np.int64(program_offsets[pattern])
    while place < program_offsets[pattern + 1]:
        if programs[place] < _AND:
            for node in programs[place + 1 : place + 3]:
                if node < 0:
                    asked |= np.uint32(1) << np.uint32(-1 - node)
            place += 3
        else:
            place += 1
    return asked


@step
def _depth(first: Number, count: Number, edges: Array, wanted: Number) -> Number:
    """How many levels of a shape, from the first on, bind the variables that are wanted."""
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
        if pair == 0 or places[pair] != places[pair - 1]:
            steps[1] = limits[2]
        allowed = min(limits[1], steps[1])
        steps[0] = allowed
        asked = _asked(pattern, constraint_offsets, constraints, program_offsets, programs)
        tested, told = _depth(first, count, edges, asked), _depth(first, count, edges, asked | named[pair])
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
                # What lies behind the last variable that the filter asks for changes nothing of that.
                level = tested - 1
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
            level = told - 1
            go_back(level, first, count, edges, bound, levels)
        is_whole[pair] = status != EXHAUSTED
        steps[1] -= allowed - max(steps[0], 0)
        go_back(-1, first, count, edges, bound, levels)
        end_graph(low, high, labels, label_ranges)
    return terms[:size].copy()
