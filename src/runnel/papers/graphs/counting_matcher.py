"""Matching over the union graph in two stages (the paper's §4.5): edges are counted, then joined.

`joined` counts the edges of all patterns and asks constraints last, as G-ToPSS does. `union_graph` takes from every
list only patterns whose constraint the publication's value satisfies. As printed, the paper's algorithm joins
whatever has one edge, and checks in stage one alone what must hold of all edges together. Both give patterns that do
not match. Here every edge is required before a join, and constraints are asked again during it.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.matching.graphs.search.publications import Publications
from runnel.papers.graphs.contract import Counters, Pairs, in_order, settle_programs
from runnel.papers.graphs.join_edges import Laid, Room, Triples, laid_shapes, lay, room_for, triples_in
from runnel.papers.graphs.union_graph import ANY, BITS, STAR, UnionGraph, find_edge, unite, value_of

_ROOM = 1 << 16


class CountingMatcher:
    """Counts edges, then joins; with or without constraint tables."""

    def __init__(self, table: PatternTable, terms: TermIndex, *, constraint_tables: bool) -> None:
        self.counters = Counters()
        self.union = unite(table, terms, laid := laid_shapes(table), constraint_tables=constraint_tables)
        self._table, self._laid, self._early = table, laid, constraint_tables
        self._counted = np.zeros(len(table), dtype=np.int64)
        self._candidates = np.empty(len(table) + 1, dtype=np.int64)

    @property
    def size(self) -> int:
        """The bytes of the union graph and of the shapes and constraints that are joined."""
        return self.union.size + sum(array.nbytes for array in self._laid)

    def match(self, publications: Publications) -> Pairs:
        """All pairs of a publication and a pattern that has a solution on it."""
        triples, room = triples_in(publications), room_for(self._laid)
        counts = np.zeros(3, dtype=np.int64)
        found = np.empty((2, len(self._table) + _ROOM), dtype=np.int64)
        pairs: list[Pairs] = []
        start = 0
        while start < len(publications):
            start, count = count_and_join(
                start,
                self.union,
                self._laid,
                triples,
                room,
                self._early,
                self._counted,
                self._candidates,
                counts,
                found,
            )
            pairs.append(in_order(found[0, :count], found[1, :count]))
        whole = tuple(np.concatenate([np.empty(0, np.int64), *(pair[side] for pair in pairs)]) for side in range(2))
        settled = settle_programs(self._table, publications, (whole[0], whole[1]))
        self.counters.touched += int(counts[0])
        self.counters.candidates += int(counts[1])
        self.counters.joined += int(counts[2])
        self.counters.matches += len(settled[0])
        return settled


@kernel
def count_and_join(
    start: int,
    union: UnionGraph,
    laid: Laid,
    triples: Triples,
    room: Room,
    early: bool,
    counted: Array,
    candidates: Array,
    counts: Array,
    found: Array,
) -> tuple[int, int]:
    """Match publications from one on, as long as there is room for all patterns; the next one and how many pairs."""
    total = 0
    publication = start
    while publication < len(triples.offsets) - 1 and total + len(counted) <= found.shape[1]:
        some = count_edges(publication, union, triples, counted, candidates, counts)
        counts[1] += some
        for place in range(some):
            pattern = candidates[place]
            shape = laid.pattern_shapes[pattern]
            edges = min(BITS, laid.offsets[shape + 1] - laid.offsets[shape])
            if counted[pattern] == (np.int64(1) << edges) - 1:
                counts[2] += 1
                if lay(pattern, publication, early, laid, triples, room):
                    found[0, total], found[1, total] = publication, pattern
                    total += 1
            counted[pattern] = 0
        publication += 1
    return publication, total


@step
def count_edges(
    publication: Number, union: UnionGraph, triples: Triples, counted: Array, candidates: Array, counts: Array
) -> Number:
    """Mark for every pattern the edges that the publication has; how many patterns have some."""
    slots, edges, edge_segments, segments, parts, relations, bound_sorts, bounds, patterns, bits, masks = union
    offsets, subjects, labels, objects, sorts, keys, ranks = triples
    some = 0
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
                gap, gap_end = last, last
                if relations[segment] != ANY:
                    same = sorts[term] == bound_sorts[segment]
                    value = value_of(term, sorts, keys, ranks)
                    first, last, gap, gap_end = satisfied(relations[segment], same, value, bounds, first, last)
                counts[0] += last - first - (gap_end - gap)
                for place in range(first, last):
                    if gap <= place < gap_end:
                        continue
                    pattern = patterns[place]
                    if counted[pattern] == 0:
                        candidates[some] = pattern
                        some += 1
                    counted[pattern] |= np.int64(1) << bits[place]
    return some


@step
def satisfied(
    relation: Number, same: bool, value: Number, bounds: Array, first: Number, last: Number
) -> tuple[Number, Number, Number, Number]:
    """The entries of a segment whose bound a value satisfies: from one to another, without a gap between."""
    if not same:
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
