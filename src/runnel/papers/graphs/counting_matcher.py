"""Match over the union graph in two stages (the paper's §4.5): count edges, then join them.

`joined` counts the edges of all patterns and checks constraints last, as G-ToPSS does. `union_graph` reads from every
list only the patterns whose constraint the publication's value satisfies. The printed algorithm joins a pattern if it
has one edge, and checks some conditions on all edges only in stage one. Both return patterns that do not match. This
module requires every edge before a join and checks the constraints again during the join.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.matching.graphs.search.publications import Publications
from runnel.papers.graphs.contract import Counters, Pairs, check_programs, sort_pairs
from runnel.papers.graphs.join_edges import (
    JoinOrders,
    JoinState,
    Triples,
    has_binding,
    make_state,
    order_shapes,
    triple_arrays,
)
from runnel.papers.graphs.union_graph import ANY, BITS, STAR, UnionGraph, build_union_graph, find_edge, value_of

_PAIRS_PER_CALL = 1 << 16


class CountingMatcher:
    """Counts edges, then joins them, with or without constraint tables."""

    def __init__(self, table: PatternTable, terms: TermIndex, *, constraint_tables: bool) -> None:
        self.counters = Counters()
        self.union = build_union_graph(
            table, terms, orders := order_shapes(table), constraint_tables=constraint_tables
        )
        self._table, self._orders, self._checks_early = table, orders, constraint_tables
        self._counted = np.zeros(len(table), dtype=np.int64)
        self._candidates = np.empty(len(table) + 1, dtype=np.int64)

    @property
    def size(self) -> int:
        """The size in bytes of the union graph, and of the shapes and constraints that are joined."""
        return self.union.size + sum(array.nbytes for array in self._orders)

    def match(self, publications: Publications) -> Pairs:
        """Return all pairs of a publication and a pattern that has a solution on it."""
        triples, state = triple_arrays(publications), make_state(self._orders)
        counts = np.zeros(3, dtype=np.int64)
        buffer = np.empty((2, len(self._table) + _PAIRS_PER_CALL), dtype=np.int64)
        pairs: list[Pairs] = []
        start = 0
        while start < len(publications):
            start, count = count_and_join(
                start,
                self.union,
                self._orders,
                triples,
                state,
                self._checks_early,
                self._counted,
                self._candidates,
                counts,
                buffer,
            )
            pairs.append(sort_pairs(buffer[0, :count], buffer[1, :count]))
        columns = tuple(np.concatenate([np.empty(0, np.int64), *(pair[side] for pair in pairs)]) for side in range(2))
        checked = check_programs(self._table, publications, (columns[0], columns[1]))
        self.counters.touched += int(counts[0])
        self.counters.candidates += int(counts[1])
        self.counters.joined += int(counts[2])
        self.counters.matches += len(checked[0])
        return checked


@kernel
def count_and_join(
    start: int,
    union: UnionGraph,
    orders: JoinOrders,
    triples: Triples,
    state: JoinState,
    checks_early: bool,
    counted: Array,
    candidates: Array,
    counts: Array,
    buffer: Array,
) -> tuple[int, int]:
    """Match publications from `start` on until the buffer may be too small.

    Return the next publication and the pairs.
    """
    total = 0
    publication = start
    while publication < len(triples.offsets) - 1 and total + len(counted) <= buffer.shape[1]:
        candidate_count = count_edges(publication, union, triples, counted, candidates, counts)
        counts[1] += candidate_count
        for index in range(candidate_count):
            pattern = candidates[index]
            shape = orders.pattern_shapes[pattern]
            edges = min(BITS, orders.offsets[shape + 1] - orders.offsets[shape])
            if counted[pattern] == (np.int64(1) << edges) - 1:
                counts[2] += 1
                if has_binding(pattern, publication, checks_early, orders, triples, state):
                    buffer[0, total], buffer[1, total] = publication, pattern
                    total += 1
            counted[pattern] = 0
        publication += 1
    return publication, total


@step
def count_edges(
    publication: Number, union: UnionGraph, triples: Triples, counted: Array, candidates: Array, counts: Array
) -> Number:
    """Mark the edges that the publication has of every pattern. Return the number of patterns with such an edge."""
    slots, edges, edge_segments, segments, parts, relations, bound_sorts, bounds, patterns, bits, masks = union
    offsets, subjects, labels, objects, sorts, keys, ranks = triples
    candidate_count = 0
    for triple in range(offsets[publication], offsets[publication + 1]):
        for mask in masks:
            subject = STAR if mask & 1 else np.int64(subjects[triple])
            label = STAR if mask & 2 else np.int64(labels[triple])
            end = STAR if mask & 4 else np.int64(objects[triple])
            edge = find_edge(subject, label, end, slots, edges)
            if edge < 0:
                continue
            for segment in range(edge_segments[edge], edge_segments[edge + 1]):
                part = parts[segment]
                term = np.int64(subjects[triple] if part == 0 else labels[triple] if part == 1 else objects[triple])
                first, last = np.int64(segments[segment]), np.int64(segments[segment + 1])
                gap_start, gap_end = last, last
                if relations[segment] != ANY:
                    is_same_sort = sorts[term] == bound_sorts[segment]
                    value = value_of(term, sorts, keys, ranks)
                    first, last, gap_start, gap_end = find_satisfied(
                        relations[segment], is_same_sort, value, bounds, first, last
                    )
                counts[0] += last - first - (gap_end - gap_start)
                for index in range(first, last):
                    if gap_start <= index < gap_end:
                        continue
                    pattern = patterns[index]
                    if counted[pattern] == 0:
                        candidates[candidate_count] = pattern
                        candidate_count += 1
                    counted[pattern] |= np.int64(1) << bits[index]
    return candidate_count


@step
def find_satisfied(
    relation: Number, is_same_sort: bool, value: Number, bounds: Array, first: Number, last: Number
) -> tuple[Number, Number, Number, Number]:
    """Return the entries of a segment whose bound a value satisfies, as a range and a gap within the range."""
    if not is_same_sort:
        return (first, last, last, last) if relation == 1 else (first, first, first, first)
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if bounds[middle] < value:
            low = middle + 1
        else:
            high = middle
    below, high = low, last
    while low < high:
        middle = (low + high) >> 1
        if bounds[middle] <= value:
            low = middle + 1
        else:
            high = middle
    if relation == 0:
        return below, low, low, low
    if relation == 1:
        return first, last, below, low
    if relation == 2:
        return low, last, last, last
    if relation == 3:
        return below, last, last, last
    if relation == 4:
        return first, below, below, below
    return first, low, low, low
