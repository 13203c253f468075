"""Laying a pattern into the edges of a publication, or of another pattern whose variables are frozen.

In: patterns by number (`StoredPatterns`), and edges in numbers: terms are 0 or more, the variables of a frozen
pattern negative. Out: whether there is a laying that meets all demands. The search tries edges in an order that
`take_in` has chosen, looks among sorted edges only where the label and subject can be, and ends after a number of
steps at the latest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.pattern_table import Code
from runnel.scaleout.containment.compare_demands import NO, UNKNOWN, YES, compare, demand_implies

EDGES, PLACES, STEPS = 4, 7, 3
"""Numbers that an edge takes (with its place in the search), a pattern's row, and a step of a conjunct."""

MOST = 200_000
"""Edges that are looked at for one pattern on one publication or frozen pattern."""

NOBODY = -1
"""Instead of a frozen pattern: the edges are a publication's."""

STEPS_EXHAUSTED = -1
"""The answer of a search that came to its end before it knew."""

_FREE = np.int32(-(2**31))
_AND, _NOT, _CERTAIN = int(Code.AND), int(Code.NOT), int(Code.CERTAIN)


class StoredPatterns(NamedTuple):
    """All patterns in arrays.

    A row of `places` has where a pattern's edges, constraints and conjuncts begin, each followed by their count,
    and how many variables it has. Edges are subject, label, object, sorted by (label, subject, object), and in the
    fourth column which edge the search takes as its first, second and so on. Constraints are variable (0 is the
    first), relation and term. A conjunct is its length and steps in postfix order. A term's text, if it is compared
    by one, begins at `begins`, where that of the one before ends.
    """

    sorts: Array
    keys: Array
    begins: Array
    texts: Array
    places: Array
    edges: Array
    constraints: Array
    steps: Array


@kernel
def take_in(places: Array, edges: Array, constraints: Array, steps: Array, pattern: Number, numbers: Array) -> None:
    """Write a pattern: its row of `places`, its edges, constraints and steps, all end to end in `numbers`."""
    for column in range(PLACES):
        places[pattern, column] = numbers[column]
    place = PLACES
    for row in range(numbers[0], numbers[0] + numbers[1]):
        for column in range(3):
            edges[row, column] = numbers[place + column]
        place += 3
    for row in range(numbers[2], numbers[2] + numbers[3]):
        for column in range(3):
            constraints[row, column] = numbers[place + column]
        place += 3
    for row in range(numbers[4], numbers[4] + numbers[5]):
        steps[row] = numbers[place]
        place += 1
    _arrange(edges, numbers[0], numbers[0] + numbers[1], numbers[6])


@step
def _arrange(edges: Array, begin: Number, stop: Number, variables: Number) -> None:
    """Sort a pattern's edges and choose the order of the search: next comes the edge of which most is bound."""
    for place in range(begin + 1, stop):
        subject, label, object_ = edges[place, 0], edges[place, 1], edges[place, 2]
        hole = place
        while hole > begin and (
            edges[hole - 1, 1] > label
            or (
                edges[hole - 1, 1] == label
                and (edges[hole - 1, 0] > subject or (edges[hole - 1, 0] == subject and edges[hole - 1, 2] > object_))
            )
        ):
            for column in range(3):
                edges[hole, column] = edges[hole - 1, column]
            hole -= 1
        edges[hole, 0], edges[hole, 1], edges[hole, 2] = subject, label, object_
    bound = np.zeros(variables, np.bool_)
    taken = np.zeros(stop - begin, np.bool_)
    for turn in range(stop - begin):
        best, most = 0, -1
        for place in range(stop - begin):
            if not taken[place]:
                score = 0
                for column in range(3):
                    node = edges[begin + place, column]
                    if node >= 0 or bound[-1 - node]:
                        score += 3 if column == 0 else 2
                if score > most:
                    best, most = place, score
        taken[best] = True
        edges[begin + turn, 3] = best
        for column in range(3):
            node = edges[begin + best, column]
            if node < 0:
                bound[-1 - node] = True


@step
def _first_at(targets: Array, begin: Number, end: Number, column: Number, least: Number) -> Number:
    """The first edge of a sorted range whose node in a column is at least a number."""
    while begin < end:
        middle = (begin + end) >> 1
        if targets[middle, column] < least:
            begin = middle + 1
        else:
            end = middle
    return begin


@step
def _meets(held: StoredPatterns, pattern: Number, variable: Number, onto: Number, frozen: Number) -> Number:
    """Whether what a variable is laid on meets all constraints on it."""
    places, constraints = held.places, held.constraints
    sorts, keys, begins, texts = held.sorts, held.keys, held.begins, held.texts
    first, count = places[pattern, 2], places[pattern, 3]
    for place in range(first, first + count):
        if constraints[place, 0] != variable:
            continue
        relation, term = constraints[place, 1], constraints[place, 2]
        if onto >= 0:
            if compare(onto, relation, term, sorts, keys, begins, texts) != YES:
                return False
            continue
        implied = False
        start, theirs = places[frozen, 2], places[frozen, 3]
        for other in range(start, start + theirs):
            if constraints[other, 0] == -1 - onto:
                given, bound = constraints[other, 1], constraints[other, 2]
                if demand_implies(given, bound, relation, term, sorts, keys, begins, texts):
                    implied = True
                    break
        if not implied:
            return False
    return True


@step
def _node(node: Number, bound: Array) -> Number:
    return node if node >= 0 else bound[-1 - node]


@step
def _is_among(held: StoredPatterns, place: Number, length: Number, bound: Array, frozen: Number) -> Number:
    """Whether a conjunct, with its variables replaced by what they are laid on, is one of a frozen pattern."""
    steps = held.steps
    other = held.places[frozen, 4]
    end = other + held.places[frozen, 5]
    while other < end:
        same = steps[other] == length
        offset = 0
        while same and offset < length:
            code = steps[place + offset]
            same = code == steps[other + 1 + offset]
            for column in range(1, STEPS):
                mine, theirs = steps[place + offset + column], steps[other + 1 + offset + column]
                if code < _AND:
                    mine = _node(mine, bound)
                same = same and mine == theirs
            offset += STEPS
        if same:
            return True
        other += 1 + steps[other]
    return False


@step
def _holds(held: StoredPatterns, place: Number, length: Number, bound: Array) -> Number:
    """Whether a conjunct holds of a publication, in three values."""
    stack = np.empty(length // STEPS + 1, np.int8)
    top = 0
    for offset in range(place, place + length, STEPS):
        code = held.steps[offset]
        if code == _NOT:
            if stack[top - 1] != UNKNOWN:
                stack[top - 1] = YES - stack[top - 1]
        elif code == _CERTAIN:
            stack[top - 1] = YES if stack[top - 1] == YES else NO
        elif code >= _AND:
            parts = held.steps[offset + 1]
            decisive = NO if code == _AND else YES
            found = YES - decisive
            for one in range(top - parts, top):
                if stack[one] == decisive:
                    found = decisive
                elif stack[one] == UNKNOWN and found != decisive:
                    found = UNKNOWN
            top -= parts - 1
            stack[top - 1] = found
        else:
            left, right = _node(held.steps[offset + 1], bound), _node(held.steps[offset + 2], bound)
            stack[top] = compare(left, code, right, held.sorts, held.keys, held.begins, held.texts)
            top += 1
    return stack[0] == YES


@step
def _rest_holds(held: StoredPatterns, pattern: Number, bound: Array, frozen: Number) -> Number:
    """Whether all conjuncts that are no constraints hold where the variables are laid."""
    place = held.places[pattern, 4]
    end = place + held.places[pattern, 5]
    while place < end:
        length = held.steps[place]
        if frozen == NOBODY:
            if not _holds(held, place + 1, length, bound):
                return False
        elif not _is_among(held, place + 1, length, bound, frozen):
            return False
        place += 1 + length
    return True


@step
def _range(
    edges: Array, row: Number, targets: Array, begin: Number, end: Number, bound: Array
) -> tuple[Number, Number]:
    """Where an edge can lie, by its label and subject as far as they are known."""
    label = _node(edges[row, 1], bound)
    if label == _FREE:
        return begin, end
    first = _first_at(targets, begin, end, 1, label)
    if first == end or targets[first, 1] != label:
        return first, first
    last = _first_at(targets, first, end, 1, label + 1)
    subject = _node(edges[row, 0], bound)
    if subject == _FREE:
        return first, last
    first = _first_at(targets, first, last, 0, subject)
    return first, _first_at(targets, first, last, 0, subject + 1)


@step
def _release(edges: Array, row: Number, fresh: Number, bound: Array) -> None:
    for column in range(3):
        if fresh & (1 << column):
            bound[-1 - edges[row, column]] = _FREE


@step
def _fits(edges: Array, row: Number, targets: Array, place: Number, bound: Array) -> Number:
    """Whether an edge can lie on a target, but for constraints and for variables that it has twice."""
    for column in range(3):
        node = edges[row, column]
        onto = targets[place, column]
        if node < 0:
            node = bound[-1 - node]
        if node != onto and node != _FREE:
            return False
    return True


@step
def _bind(
    held: StoredPatterns,
    pattern: Number,
    row: Number,
    targets: Array,
    place: Number,
    bound: Array,
    frozen: Number,
) -> Number:
    """Bind what an edge has unbound to what it fits on: bits for these nodes, or -1 with nothing changed."""
    edges = held.edges
    fresh = 0
    for column in range(3):
        node, onto = edges[row, column], targets[place, column]
        if node >= 0 or bound[-1 - node] == onto:
            continue
        if bound[-1 - node] != _FREE or not _meets(held, pattern, -1 - node, onto, frozen):
            _release(edges, row, fresh, bound)
            return -1
        bound[-1 - node] = onto
        fresh |= 1 << column
    return fresh


@step
def find_homomorphism(
    held: StoredPatterns, pattern: Number, targets: Array, begin: Number, end: Number, frozen: Number, most: Number
) -> Number:
    """Whether a pattern can be laid into edges `begin` to `end`: YES, NO, or TIRED after too many steps.

    The edges are those of the pattern `frozen`, or a publication's where that is NOBODY.
    """
    return count_homomorphisms(held, pattern, targets, begin, end, frozen, most)[0]


@step
def count_homomorphisms(
    held: StoredPatterns, pattern: Number, targets: Array, begin: Number, end: Number, frozen: Number, most: Number
) -> tuple[Number, Number]:
    """The answer of `find_homomorphism`, and how many edges were looked at for it."""
    edges = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    bound = np.full(held.places[pattern, 6] + 1, _FREE, np.int32)
    levels = np.empty((count + 1, 3), np.int64)  # the next target, the end of the range, what was bound
    depth, tried = 0, 0
    entering = True
    if count == 0:
        return YES if _rest_holds(held, pattern, bound, frozen) else NO, tried
    while True:
        if depth == count:
            if _rest_holds(held, pattern, bound, frozen):
                return YES, tried
            entering = False
            depth -= 1
            _release(edges, first + edges[first + depth, 3], levels[depth, 2], bound)
        row = first + edges[first + depth, 3]
        if entering:
            levels[depth, 0], levels[depth, 1] = _range(edges, row, targets, begin, end, bound)
        place, stop = levels[depth, 0], levels[depth, 1]
        fresh = -1
        while place < stop and fresh < 0:
            if _fits(edges, row, targets, place, bound):
                fresh = _bind(held, pattern, row, targets, place, bound, frozen)
            place += 1
            tried += 1
        if tried > most:
            return STEPS_EXHAUSTED, tried
        if fresh >= 0:
            levels[depth, 0], levels[depth, 2] = place, fresh
            depth += 1
            entering = True
            continue
        entering = False
        # What bound nothing new cannot do better on another edge.
        depth -= 1
        while depth >= 0 and levels[depth, 2] == 0:
            depth -= 1
        if depth < 0:
            return NO, tried
        _release(edges, first + edges[first + depth, 3], levels[depth, 2], bound)
