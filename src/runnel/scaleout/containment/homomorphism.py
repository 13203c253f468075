"""Find homomorphisms from a pattern into the edges of a publication, or of another, *frozen* pattern.

In: patterns by number (`StoredPatterns`), and encoded edges, in which terms are not negative, and variables of a
frozen pattern are negative. Out: whether a homomorphism exists that meets all demands. The search maps edges in the
order that `take_in` has chosen, restricts the sorted target edges by label and subject, and ends after a maximum
number of steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.pattern_table import Code
from runnel.scaleout.containment.compare_demands import NO, UNKNOWN, YES, compare, demand_implies

EDGES, PLACES, STEPS = 4, 7, 3
"""Columns of an edge (including its position in the search), of a pattern's row, and of a step of a conjunct."""

MAX_TRIED_EDGES = 200_000
"""Limit for the edges that are tried for one pattern on one publication or frozen pattern."""

NOBODY = -1
"""In index of a frozen pattern: the edges belong to a publication."""

STEPS_EXHAUSTED = -1
"""The result of a search that reached the limit."""

_FREE = np.int32(-(2**31))
_AND, _NOT, _CERTAIN = int(Code.AND), int(Code.NOT), int(Code.CERTAIN)


class StoredPatterns(NamedTuple):
    """All patterns in arrays.

    A row of `places` contains the start and the number of a pattern's edges, constraints and conjuncts, and the
    number of its variables. Edges are subject, label and object, sorted by (label, subject, object). Their fourth
    column is the order of the search: row i has the index of the edge that is mapped as the i-th. Constraints are a
    variable (from 0), a relation and a term. A conjunct is its length, followed by steps in postfix order. The text
    of term i, if it is compared by text, is at `begins[i]` to `begins[i + 1]`.
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
    """Write a pattern: its row of `places`, its edges, constraints and steps, which are concatenated in `numbers`."""
    for column in range(PLACES):
        places[pattern, column] = numbers[column]
    index = PLACES
    for row in range(numbers[0], numbers[0] + numbers[1]):
        for column in range(3):
            edges[row, column] = numbers[index + column]
        index += 3
    for row in range(numbers[2], numbers[2] + numbers[3]):
        for column in range(3):
            constraints[row, column] = numbers[index + column]
        index += 3
    for row in range(numbers[4], numbers[4] + numbers[5]):
        steps[row] = numbers[index]
        index += 1
    _arrange(edges, numbers[0], numbers[0] + numbers[1], numbers[6])


@step
def _arrange(edges: Array, begin: Number, stop: Number, variables: Number) -> None:
    """Sort a pattern's edges, and choose the order of the search: the edge with the most bound nodes comes next."""
    for index in range(begin + 1, stop):
        subject, label, object_ = edges[index, 0], edges[index, 1], edges[index, 2]
        hole = index
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
    for rank in range(stop - begin):
        best, most = 0, -1
        for index in range(stop - begin):
            if not taken[index]:
                score = 0
                for column in range(3):
                    node = edges[begin + index, column]
                    if node >= 0 or bound[-1 - node]:
                        score += 3 if column == 0 else 2
                if score > most:
                    best, most = index, score
        taken[best] = True
        edges[begin + rank, 3] = best
        for column in range(3):
            node = edges[begin + best, column]
            if node < 0:
                bound[-1 - node] = True


@step
def _first_at(targets: Array, begin: Number, end: Number, column: Number, least: Number) -> Number:
    """Return the first edge of a sorted range whose node in a column is at least `least`."""
    while begin < end:
        middle = (begin + end) >> 1
        if targets[middle, column] < least:
            begin = middle + 1
        else:
            end = middle
    return begin


@step
def _meets(held: StoredPatterns, pattern: Number, variable: Number, onto: Number, frozen: Number) -> Number:
    """Return whether the node that a variable is mapped to meets all constraints on the variable."""
    places, constraints = held.places, held.constraints
    sorts, keys, begins, texts = held.sorts, held.keys, held.begins, held.texts
    first, count = places[pattern, 2], places[pattern, 3]
    for index in range(first, first + count):
        if constraints[index, 0] != variable:
            continue
        relation, term = constraints[index, 1], constraints[index, 2]
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
def _is_among(held: StoredPatterns, index: Number, length: Number, bound: Array, frozen: Number) -> Number:
    """Return whether a conjunct, with its variables mapped, is a conjunct of a frozen pattern."""
    steps = held.steps
    other = held.places[frozen, 4]
    end = other + held.places[frozen, 5]
    while other < end:
        same = steps[other] == length
        offset = 0
        while same and offset < length:
            code = steps[index + offset]
            same = code == steps[other + 1 + offset]
            for column in range(1, STEPS):
                mine, theirs = steps[index + offset + column], steps[other + 1 + offset + column]
                if code < _AND:
                    mine = _node(mine, bound)
                same = same and mine == theirs
            offset += STEPS
        if same:
            return True
        other += 1 + steps[other]
    return False


@step
def _holds(held: StoredPatterns, index: Number, length: Number, bound: Array) -> Number:
    """Return whether a conjunct holds for a publication, evaluated in three-valued logic."""
    stack = np.empty(length // STEPS + 1, np.int8)
    top = 0
    for offset in range(index, index + length, STEPS):
        code = held.steps[offset]
        if code == _NOT:
            if stack[top - 1] != UNKNOWN:
                stack[top - 1] = YES - stack[top - 1]
        elif code == _CERTAIN:
            stack[top - 1] = YES if stack[top - 1] == YES else NO
        elif code >= _AND:
            parts = held.steps[offset + 1]
            decisive = NO if code == _AND else YES
            result = YES - decisive
            for operand in range(top - parts, top):
                if stack[operand] == decisive:
                    result = decisive
                elif stack[operand] == UNKNOWN and result != decisive:
                    result = UNKNOWN
            top -= parts - 1
            stack[top - 1] = result
        else:
            left, right = _node(held.steps[offset + 1], bound), _node(held.steps[offset + 2], bound)
            stack[top] = compare(left, code, right, held.sorts, held.keys, held.begins, held.texts)
            top += 1
    return stack[0] == YES


@step
def _rest_holds(held: StoredPatterns, pattern: Number, bound: Array, frozen: Number) -> Number:
    """Return whether all conjuncts other than constraints hold under the mapping."""
    index = held.places[pattern, 4]
    end = index + held.places[pattern, 5]
    while index < end:
        length = held.steps[index]
        if frozen == NOBODY:
            if not _holds(held, index + 1, length, bound):
                return False
        elif not _is_among(held, index + 1, length, bound, frozen):
            return False
        index += 1 + length
    return True


@step
def _range(
    edges: Array, row: Number, targets: Array, begin: Number, end: Number, bound: Array
) -> tuple[Number, Number]:
    """Return the range of target edges for an edge, restricted by its label and subject if they are bound."""
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
def _release(edges: Array, row: Number, new_bits: Number, bound: Array) -> None:
    for column in range(3):
        if new_bits & (1 << column):
            bound[-1 - edges[row, column]] = _FREE


@step
def _fits(edges: Array, row: Number, targets: Array, index: Number, bound: Array) -> Number:
    """Return whether an edge fits on a target, without checking constraints and variables that occur twice."""
    for column in range(3):
        node = edges[row, column]
        onto = targets[index, column]
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
    index: Number,
    bound: Array,
    frozen: Number,
) -> Number:
    """Bind the unbound nodes of an edge to a target. Return a bit for each of them, or -1 if that is not possible."""
    edges = held.edges
    new_bits = 0
    for column in range(3):
        node, onto = edges[row, column], targets[index, column]
        if node >= 0 or bound[-1 - node] == onto:
            continue
        if bound[-1 - node] != _FREE or not _meets(held, pattern, -1 - node, onto, frozen):
            _release(edges, row, new_bits, bound)
            return -1
        bound[-1 - node] = onto
        new_bits |= 1 << column
    return new_bits


@step
def find_homomorphism(
    held: StoredPatterns, pattern: Number, targets: Array, begin: Number, end: Number, frozen: Number, most: Number
) -> Number:
    """Return whether a pattern maps into the edges `begin` to `end`: YES, NO, or STEPS_EXHAUSTED at the limit.

    The edges are those of the pattern `frozen`, or of a publication if that is NOBODY.
    """
    return count_homomorphisms(held, pattern, targets, begin, end, frozen, most)[0]


@step
def count_homomorphisms(
    held: StoredPatterns, pattern: Number, targets: Array, begin: Number, end: Number, frozen: Number, most: Number
) -> tuple[Number, Number]:
    """Return the result of `find_homomorphism`, and the number of edges that were tried."""
    edges = held.edges
    first, count = held.places[pattern, 0], held.places[pattern, 1]
    bound = np.full(held.places[pattern, 6] + 1, _FREE, np.int32)
    levels = np.empty((count + 1, 3), np.int64)  # the next target, the end of the range, and the nodes bound
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
        index, stop = levels[depth, 0], levels[depth, 1]
        new_bits = -1
        while index < stop and new_bits < 0:
            if _fits(edges, row, targets, index, bound):
                new_bits = _bind(held, pattern, row, targets, index, bound, frozen)
            index += 1
            tried += 1
        if tried > most:
            return STEPS_EXHAUSTED, tried
        if new_bits >= 0:
            levels[depth, 0], levels[depth, 2] = index, new_bits
            depth += 1
            entering = True
            continue
        entering = False
        # An edge that bound nothing new gives the same result on any other target, so skip it.
        depth -= 1
        while depth >= 0 and levels[depth, 2] == 0:
            depth -= 1
        if depth < 0:
            return NO, tried
        _release(edges, first + edges[first + depth, 3], levels[depth, 2], bound)
