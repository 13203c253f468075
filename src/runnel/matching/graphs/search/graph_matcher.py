"""The indexed graph matcher. In: the graphs of a batch. Out: the patterns that each graph contains.

Every edge of a graph is looked up in the index, as it is and with terms replaced by variables. This finds the shapes
whose rarest edge it may be. The bindings of a shape in the graph are searched once for all its patterns (see
`search`). For each binding, the constraint lists contain the candidate patterns, which are then checked. A search
that takes too many steps is abandoned, and the remaining patterns of the shape are undecided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from runnel.arrays import Array, read_only
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.graph_layout import GraphLayout, hash_edge
from runnel.matching.graphs.patterns.pattern_table import Code, PatternTable
from runnel.matching.graphs.search.compare_terms import constraints_hold, program_holds
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

STEPS_OF_SHAPE = 300_000
"""Maximum number of steps for one shape in one graph. A step reads a triple or checks eight patterns."""
STEPS_OF_GRAPH = 3_000_000
"""Maximum number of steps for one graph in addition to the first steps of every shape: up to half a second."""
FIRST_STEPS = 2_000
"""Steps that are reserved for every shape, regardless of other shapes. Nearly all shapes need fewer."""

_HELD, _DOUBTED, _SHAPES, _BINDINGS, _CHECKS = 0, 1, 2, 3, 4


class IndexArrays(NamedTuple):
    """The index of shapes and the constraint lists (see `graph_layout` and `constraint_lists`)."""

    slots: Array
    bucket_offsets: Array
    bucket_shapes: Array
    masks: Array
    depths: Array
    shape_members: Array
    shape_groups: Array
    variables: Array
    sorts: Array
    below: Array
    above: Array
    members: Array
    value_offsets: Array
    values: Array


class Tally(NamedTuple):
    """The results for the current graph: which patterns hold, lists of matched and undecided patterns, and counters.

    `visited` and `is_visited` are the buckets that were found, and `waiting` is the queue of shapes.
    """

    holds: Array
    held: Array
    doubted: Array
    visited: Array
    is_visited: Array
    waiting: Array
    counters: Array


@dataclass(frozen=True)
class MatchedGraphs:
    """Pairs of a publication (by its index in the batch) and a pattern's key. The `doubted` pairs are undecided."""

    places: Array
    keys: Array
    doubted_places: Array
    doubted_keys: Array


@dataclass
class GraphCounters:
    """The numbers of searched shapes, found bindings and checked patterns since a matcher was created."""

    shapes: int = 0
    bindings: int = 0
    checks: int = 0


class GraphMatcher:
    """Matches publications against the patterns of a layout."""

    def __init__(
        self, layout: GraphLayout, *, steps_of_shape: int = STEPS_OF_SHAPE, steps_of_graph: int = STEPS_OF_GRAPH
    ) -> None:
        self.layout = layout
        self.counters = GraphCounters()
        self._limits = np.array([steps_of_shape, steps_of_graph], dtype=np.int64)
        self._ordered = compares_texts(layout.table)
        self._patterns = pattern_arrays(layout.table)
        self._index = _index_arrays(layout)
        self._search = search_over(layout.table, len(layout.terms))
        patterns, buckets = len(layout), len(layout.buckets)
        self._tally = Tally(
            holds=np.zeros(patterns, dtype=np.bool_),
            held=np.empty(patterns, dtype=np.int32),
            doubted=np.empty(patterns, dtype=np.int32),
            visited=np.empty(buckets, dtype=np.int32),
            is_visited=np.zeros(buckets, dtype=np.bool_),
            waiting=np.empty(2 * len(layout.table.shape_edges), dtype=np.int32),
            counters=np.zeros(5, dtype=np.int64),
        )

    def match(self, publications: Publications) -> MatchedGraphs:
        """Return the patterns that each publication contains."""
        graphs = graph_arrays(publications, ordered=self._ordered)
        places, matched, doubted_places, doubted = match_graphs(
            graphs, self._patterns, self._index, self._search, self._tally, self._limits
        )
        counts = self._tally.counters
        self.counters.shapes += int(counts[_SHAPES])
        self.counters.bindings += int(counts[_BINDINGS])
        self.counters.checks += int(counts[_CHECKS])
        counts[:] = 0
        keys = self.layout.keys
        return MatchedGraphs(places, keys[matched], doubted_places, keys[doubted])


def compares_texts(table: PatternTable) -> bool:
    """Return whether a program of the table uses an order relation."""
    programs = table.programs.values
    return bool(len(programs)) and bool(np.any((programs >= 2) & (programs < Code.AND)))


def _index_arrays(layout: GraphLayout) -> IndexArrays:
    lists = layout.lists
    arrays = (
        layout.slots,
        layout.buckets.offsets,
        layout.buckets.values,
        layout.masks,
        layout.depths,
        lists.shape_members,
        lists.shape_groups,
        lists.variables,
        lists.sorts,
        lists.below,
        lists.above,
        lists.members,
        lists.value_offsets,
        lists.values,
    )
    return IndexArrays(*map(read_only, arrays))


@kernel
def match_graphs(
    graphs: GraphArrays, patterns: PatternArrays, index: IndexArrays, search: Search, tally: Tally, limits: Array
) -> tuple[Array, Array, Array, Array]:
    """Return pairs of a graph and a pattern: the graphs and patterns that match, and those that are undecided."""
    places, matched = np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.int64)
    doubted_places, doubted = np.empty(16, dtype=np.int64), np.empty(16, dtype=np.int64)
    count, doubts = 0, 0
    counters, label_ranges = tally.counters, search.label_ranges
    for number in range(len(graphs.offsets) - 1):
        low, high = graphs.offsets[number], graphs.offsets[number + 1]
        search.steps[1] = limits[1]
        counters[_HELD] = 0
        counters[_DOUBTED] = 0
        begin_graph(low, high, graphs.labels, label_ranges)
        visited = find_shapes(low, high, graphs, patterns, index, tally, len(label_ranges))
        match_shapes(low, high, visited, graphs, patterns, index, search, tally, limits[0])
        end_graph(low, high, graphs.labels, label_ranges)
        while count + counters[_HELD] > len(matched):
            places, matched = np.append(places, places), np.append(matched, matched)
        for position in range(counters[_HELD]):
            tally.holds[tally.held[position]] = False
            places[count], matched[count] = number, tally.held[position]
            count += 1
        while doubts + counters[_DOUBTED] > len(doubted):
            doubted_places, doubted = np.append(doubted_places, doubted_places), np.append(doubted, doubted)
        for position in range(counters[_DOUBTED]):
            doubted_places[doubts], doubted[doubts] = number, tally.doubted[position]
            doubts += 1
    return places[:count].copy(), matched[:count].copy(), doubted_places[:doubts].copy(), doubted[:doubts].copy()


@step
def find_shapes(
    low: Number,
    high: Number,
    graphs: GraphArrays,
    patterns: PatternArrays,
    index: IndexArrays,
    tally: Tally,
    plan_terms: Number,
) -> Number:
    """Collect the distinct buckets of the edges of a graph in `tally.visited`, and return their number."""
    subjects, labels, objects = graphs.subjects, graphs.labels, graphs.objects
    slots, bucket_offsets, bucket_shapes, masks = (
        index.slots,
        index.bucket_offsets,
        index.bucket_shapes,
        index.masks,
    )
    edge_offsets, edges = patterns.edge_offsets, patterns.edges
    visited, is_visited = tally.visited, tally.is_visited
    count, mask = 0, np.uint64(len(slots) - 1)
    for triple in range(low, high):
        for kind in range(8):
            subject = np.int64(subjects[triple]) if kind & 1 else -1
            label = np.int64(labels[triple]) if kind & 2 else -1
            object_ = np.int64(objects[triple]) if kind & 4 else -1
            # A term that occurs in no pattern is in no bucket.
            if not masks[kind] or subject >= plan_terms or label >= plan_terms or object_ >= plan_terms:
                continue
            slot = hash_edge(subject, label, object_) & mask
            while slots[slot] >= 0:
                bucket = slots[slot]
                edge = edge_offsets[bucket_shapes[bucket_offsets[bucket]]]
                if (
                    max(edges[edge], -1) == subject
                    and max(edges[edge + 1], -1) == label
                    and max(edges[edge + 2], -1) == object_
                ):
                    if not is_visited[bucket]:
                        is_visited[bucket] = True
                        visited[count] = bucket
                        count += 1
                    break
                slot = (slot + np.uint64(1)) & mask
    for position in range(count):
        is_visited[visited[position]] = False
    return count


@step
def match_shapes(
    low: Number,
    high: Number,
    visited: Number,
    graphs: GraphArrays,
    patterns: PatternArrays,
    index: IndexArrays,
    search: Search,
    tally: Tally,
    limit: Number,
) -> None:
    """Search a graph for the shapes of the visited buckets, each until it can match no more patterns.

    Each shape has a number of reserved steps, so that expensive patterns cannot use up the steps of cheap ones.
    """
    (_, subjects, labels, objects, by_object, sorts, values) = graphs
    (edge_offsets, edges, constraint_offsets, constraints, program_offsets, programs) = patterns
    (bound, levels, stack, label_ranges, steps) = search
    (holds, held, doubted, buckets, _, waiting, counters) = tally
    bucket_offsets, bucket_shapes, depths, shape_members = (
        index.bucket_offsets,
        index.bucket_shapes,
        index.depths,
        index.shape_members,
    )
    (shape_groups, variables, group_sorts, below, above, members, value_offsets, listed) = index[6:]
    shapes = 0
    for bucket in range(visited):
        for position in range(bucket_offsets[buckets[bucket]], bucket_offsets[buckets[bucket] + 1]):
            waiting[shapes] = bucket_shapes[position]
            shapes += 1
    turn, first_turns = 0, shapes
    while turn < shapes:
        shape = waiting[turn]
        is_first = turn < first_turns
        turn += 1
        first, count = edge_offsets[shape], (edge_offsets[shape + 1] - edge_offsets[shape]) // 3
        member, last_member = np.int64(shape_members[shape]), np.int64(shape_members[shape + 1])
        only = member if last_member - member == 1 else np.int64(-1)
        before = counters[_HELD]
        counters[_SHAPES] += 1
        allowed = min(limit, FIRST_STEPS if is_first else steps[1])
        steps[0] = allowed
        level, is_open, status = np.int64(0), False, NONE
        while level >= 0:
            status = advance(
                    level, is_open, first, count, only, low, high, edges, constraint_offsets, constraints, subjects,
                    labels, objects, by_object, sorts, values, bound, levels, label_ranges, steps,
                )  # fmt: skip
            level, is_open = np.int64(-1), True
            if status != FOUND:
                continue
            counters[_BINDINGS] += 1
            group, last_group = np.int64(shape_groups[shape]), np.int64(shape_groups[shape + 1])
            start, end = member, np.int64(members[group]) if group < last_group else last_member
            while group <= last_group:
                counters[_CHECKS] += end - start
                steps[0] -= (end - start) >> 3
                for pattern in range(start, end):
                    if holds[pattern] or not constraints_hold(
                        pattern, -1, constraint_offsets, constraints, sorts, values, bound
                    ):
                        continue
                    if program_holds(pattern, program_offsets, programs, sorts, values, bound, stack):
                        holds[pattern] = True
                        held[counters[_HELD]] = pattern
                        counters[_HELD] += 1
                if group < last_group:
                    term = bound[variables[group]]
                    start, end = _candidate_range(
                        values[term],
                        below[group],
                        above[group],
                        listed,
                        value_offsets[group],
                        value_offsets[group + 1],
                    )
                    end = end if sorts[term] == group_sorts[group] else start
                    shift = members[group] - value_offsets[group]
                    start, end = start + shift, end + shift
                group += 1
            if counters[_HELD] - before < last_member - member:
                # Deeper levels bind no variable of a filter, so other bindings of them cannot match more patterns.
                level = np.int64(depths[shape]) - 1
                go_back(level, first, count, edges, bound, levels)
        go_back(-1, first, count, edges, bound, levels)
        if not is_first:
            steps[1] -= allowed - max(steps[0], 0)
        if status == EXHAUSTED and is_first and limit > FIRST_STEPS:
            # Continue a shape that needs many steps after all other shapes have used their reserved steps.
            waiting[shapes] = shape
            shapes += 1
        elif status == EXHAUSTED:
            for pattern in range(member, last_member):
                if not holds[pattern]:
                    doubted[counters[_DOUBTED]] = pattern
                    counters[_DOUBTED] += 1


@step
def _candidate_range(
    value: Number, below: Number, above: Number, listed: Array, first: Number, last: Number
) -> tuple[Number, Number]:
    """Return the range of a sorted list whose values are between `value - below` and `value + above`.

    `above` is either 0 or infinite.
    """
    low, high = np.int64(first), np.int64(last)
    while low < high:
        middle = (low + high) >> 1
        if listed[middle] < value - below:
            low = middle + 1
        else:
            high = middle
    start, high = low, np.int64(last)
    # Handle an infinite `above` separately: the sum of minus infinity and infinity would be NaN.
    if above > 0:
        low = high
    while low < high:
        middle = (low + high) >> 1
        if listed[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return start, low
