"""The backtracking search for a shape in a graph, in kernels: it matches one edge of the shape after another.

A level is a position in the shape's order of edges. The candidate triples of a level are a range of the graph's
triples, narrowed by the known nodes of its edge: label, then subject, then object. Every triple that is tried is a
step, and the number of steps is limited.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, inlined, step
from runnel.matching.graphs.search.compare_terms import constraints_hold
from runnel.matching.graphs.search.search_arrays import END, FEW, FREE, FRESH, PLACE, THROUGH

NONE, FOUND, EXHAUSTED = 0, 1, -1


@step
def begin_graph(low: Number, high: Number, labels: Array, label_ranges: Array) -> None:
    """Fill in the ranges of triples with each label of a graph."""
    for position in range(low, high):
        label = labels[position]
        if label < len(label_ranges):
            if position == low or labels[position - 1] != label:
                label_ranges[label, 0] = position
            label_ranges[label, 1] = position + 1


@step
def end_graph(low: Number, high: Number, labels: Array, label_ranges: Array) -> None:
    """Clear the ranges that `begin_graph` filled in."""
    for position in range(low, high):
        label = labels[position]
        if label < len(label_ranges):
            label_ranges[label, 0] = label_ranges[label, 1] = 0


@step
def first_not_below(values: Array, first: Number, last: Number, wanted: Number) -> Number:
    """Return the first position in a sorted range whose value is at least `wanted`."""
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@step
def _first_through(order: Array, values: Array, first: Number, last: Number, wanted: Number) -> Number:
    """Return the first position in a range of `order`, which sorts `values`, whose value is at least `wanted`."""
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if values[order[middle]] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@step
def _range_of(values: Array, low: Number, high: Number, wanted: Number) -> tuple[Number, Number]:
    """Return the part of a sorted range whose values equal `wanted`."""
    start = first_not_below(values, low, high, wanted)
    return start, first_not_below(values, start, high, wanted + 1)


@inlined
def _open(
    level: Number,
    edge: Number,
    low: Number,
    high: Number,
    edges: Array,
    subjects: Array,
    labels: Array,
    objects: Array,
    by_object: Array,
    bound: Array,
    levels: Array,
    label_ranges: Array,
) -> None:
    """Find the candidate triples of an edge in the graph from `low` to `high`."""
    subject, label, object_ = np.int64(edges[edge]), np.int64(edges[edge + 1]), np.int64(edges[edge + 2])
    subject = subject if subject >= 0 else bound[-1 - subject]
    label = label if label >= 0 else bound[-1 - label]
    object_ = object_ if object_ >= 0 else bound[-1 - object_]
    start, end, through = np.int64(low), np.int64(high), 0
    if label >= 0:
        if label < len(label_ranges):
            start, end = label_ranges[label, 0], label_ranges[label, 1]
        else:
            start, end = _range_of(labels, start, end, label)
        if subject >= 0:
            start, end = _range_of(subjects, start, end, subject)
            if object_ >= 0:
                start, end = _range_of(objects, start, end, object_)
        elif object_ >= 0 and high - low > FEW:
            start = _first_through(by_object, objects, start, end, object_)
            end = _first_through(by_object, objects, start, end, object_ + 1)
            through = 1
    levels[level, PLACE], levels[level, END] = start, end
    levels[level, FRESH], levels[level, THROUGH] = 0, through


@step
def undo(level: Number, edge: Number, edges: Array, bound: Array, levels: Array) -> None:
    """Unbind the variables that a level has bound."""
    fresh = levels[level, FRESH]
    if fresh:
        for part in range(3):
            if (fresh >> part) & 1:
                bound[-1 - edges[edge + part]] = FREE
        levels[level, FRESH] = 0


@inlined
def _match_edge(
    level: Number,
    edge: Number,
    triple: Number,
    pattern: Number,
    edges: Array,
    constraint_offsets: Array,
    constraints: Array,
    subjects: Array,
    labels: Array,
    objects: Array,
    sorts: Array,
    values: Array,
    bound: Array,
    levels: Array,
) -> bool:
    """Match an edge with a triple if possible, and check the pattern's constraints on newly bound variables."""
    fits, part = True, 0
    while fits and part < 3:
        node = edges[edge + part]
        term = subjects[triple]
        if part > 0:
            term = labels[triple] if part == 1 else objects[triple]
        if node >= 0:
            fits = node == term
        elif bound[-1 - node] != FREE:
            fits = bound[-1 - node] == term
        else:
            bound[-1 - node] = term
            levels[level, FRESH] |= 1 << part
            if pattern >= 0:  # check constraints before joins, as in the paper, because most candidates fail here
                fits = constraints_hold(pattern, -1 - node, constraint_offsets, constraints, sorts, values, bound)
        part += 1
    if not fits:
        undo(level, edge, edges, bound, levels)
    return fits


@inlined
def advance(
    level: Number,
    is_open: Number,
    first: Number,
    count: Number,
    pattern: Number,
    low: Number,
    high: Number,
    edges: Array,
    constraint_offsets: Array,
    constraints: Array,
    subjects: Array,
    labels: Array,
    objects: Array,
    by_object: Array,
    sorts: Array,
    values: Array,
    bound: Array,
    levels: Array,
    label_ranges: Array,
    steps: Array,
) -> Number:
    """Continue the search at a level of a shape until all edges are matched. Return FOUND, NONE or EXHAUSTED.

    The shape has `count` edges, which begin at `first`. The graph is from `low` to `high`. With `is_open`, the next
    candidate of the level is tried; otherwise the level begins with its first candidate.
    """
    status = NONE
    while level >= 0:
        edge = first + 3 * level
        if is_open:
            undo(level, edge, edges, bound, levels)
        else:
            _open(level, edge, low, high, edges, subjects, labels, objects, by_object, bound, levels, label_ranges)
        is_matched, is_open = False, True
        while not is_matched and levels[level, PLACE] < levels[level, END] and steps[0] > 0:
            triple = levels[level, PLACE]
            levels[level, PLACE] += 1
            steps[0] -= 1
            if levels[level, THROUGH]:
                triple = np.int64(by_object[triple])
            is_matched = _match_edge(
                level, edge, triple, pattern, edges, constraint_offsets, constraints,
                subjects, labels, objects, sorts, values, bound, levels,
            )  # fmt: skip
        if steps[0] <= 0:
            status, level = EXHAUSTED, -1
        elif not is_matched:
            level -= 1
        elif level == count - 1:
            status, level = FOUND, -1
        else:
            level += 1
            is_open = False
    return status


@step
def go_back(level: Number, first: Number, count: Number, edges: Array, bound: Array, levels: Array) -> None:
    """Unbind the variables that the levels after a given level have bound."""
    for deeper in range(level + 1, count):
        undo(deeper, first + 3 * deeper, edges, bound, levels)
