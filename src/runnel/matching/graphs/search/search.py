"""The search for the ways to lay a shape into a graph, inside kernels: edge by edge, with going back.

A level is a place in the shape's order of edges. At every level the triples that its edge may be laid onto are a
range of the graph's, narrowed by what is known of the edge: label, then subject, then object. Every triple that is
looked at is a step, and steps are counted down.
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
    """Note where the labels of a graph lie."""
    for place in range(low, high):
        label = labels[place]
        if label < len(label_ranges):
            if place == low or labels[place - 1] != label:
                label_ranges[label, 0] = place
            label_ranges[label, 1] = place + 1


@step
def end_graph(low: Number, high: Number, labels: Array, label_ranges: Array) -> None:
    """Forget where the labels of a graph lie."""
    for place in range(low, high):
        label = labels[place]
        if label < len(label_ranges):
            label_ranges[label, 0] = label_ranges[label, 1] = 0


@step
def first_not_below(values: Array, first: Number, last: Number, wanted: Number) -> Number:
    """The first place of a sorted range whose value is not below a number."""
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
    """The same for a range that is sorted by an order of it."""
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
    """The part of a sorted range that has a value."""
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
    """Find the range of triples that an edge may be laid onto, in the graph from `low` to `high`."""
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
    """Free the variables that a level bound."""
    fresh = levels[level, FRESH]
    if fresh:
        for part in range(3):
            if (fresh >> part) & 1:
                bound[-1 - edges[edge + part]] = FREE
        levels[level, FRESH] = 0


@inlined
def _lay(
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
    """Lay an edge onto a triple, if that goes; a pattern's constraints on what becomes bound are asked at once."""
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
            if pattern >= 0:  # constraints before joins, as the paper has it: most fail here
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
    """Go on at a level of a shape, which has `count` edges from the place `first` on, until all are laid.

    The graph is from `low` to `high`; `is_open` says that the level was begun before.
    """
    status = NONE
    while level >= 0:
        edge = first + 3 * level
        if is_open:
            undo(level, edge, edges, bound, levels)
        else:
            _open(level, edge, low, high, edges, subjects, labels, objects, by_object, bound, levels, label_ranges)
        is_laid, is_open = False, True
        while not is_laid and levels[level, PLACE] < levels[level, END] and steps[0] > 0:
            triple = levels[level, PLACE]
            levels[level, PLACE] += 1
            steps[0] -= 1
            if levels[level, THROUGH]:
                triple = np.int64(by_object[triple])
            is_laid = _lay(
                level, edge, triple, pattern, edges, constraint_offsets, constraints,
                subjects, labels, objects, sorts, values, bound, levels,
            )  # fmt: skip
        if steps[0] <= 0:
            status, level = EXHAUSTED, -1
        elif not is_laid:
            level -= 1
        elif level == count - 1:
            status, level = FOUND, -1
        else:
            level += 1
            is_open = False
    return status


@step
def go_back(level: Number, first: Number, count: Number, edges: Array, bound: Array, levels: Array) -> None:
    """Free what all levels behind one have bound."""
    for deeper in range(level + 1, count):
        undo(deeper, first + 3 * deeper, edges, bound, levels)
