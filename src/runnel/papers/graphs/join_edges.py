"""Laying the edges of one pattern into one publication, edge by edge; and what a constraint asks of a term.

In: a shape's edges in the order in which they are laid, the constraints of a pattern, the triples of a publication.
Out: whether there is a binding under which all edges are triples and all constraints hold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.algebra.graphs.edges import MAX_VARIABLES
from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import Array, row_offsets
from runnel.kernel import Number, kernel, step
from runnel.matching.graphs.patterns.pattern_table import CONSTRAINT, EDGE, PatternTable
from runnel.matching.graphs.search.publications import Publications

FREE = -1
"""In place of the term of a variable that has none yet."""

_TAGGED, _OTHER, _TEXT = int(Sort.TAGGED), int(Sort.OTHER), int(Sort.TEXT)


class Laid(NamedTuple):
    """The shapes of a table: shape i has the edges (rows of `nodes`) from offsets[i] to offsets[i + 1]."""

    offsets: Array
    nodes: Array
    pattern_shapes: Array
    constraint_offsets: Array
    constraints: Array


class Triples(NamedTuple):
    """The triples of a batch, and what its terms stand for."""

    offsets: Array
    subjects: Array
    labels: Array
    objects: Array
    sorts: Array
    keys: Array
    ranks: Array


class Room(NamedTuple):
    """What a join has done: the binding, and for every edge its next triple, where these end, and what it bound."""

    binding: Array
    places: Array
    stops: Array
    bound: Array


def laid_shapes(table: PatternTable) -> Laid:
    """The shapes with their edges in an order in which each next has as many known ends as there can be."""
    offsets = row_offsets(table.shape_edges.lengths // EDGE)
    nodes = table.shape_edges.values.reshape(-1, EDGE).copy()
    order_edges(offsets, nodes)
    constraints = table.constraints.values.reshape(-1, CONSTRAINT)
    return Laid(offsets, nodes, table.pattern_shapes, table.constraints.offsets // CONSTRAINT, constraints)


def triples_in(publications: Publications) -> Triples:
    """The arrays of a batch for the join."""
    return Triples(
        publications.offsets,
        publications.subjects,
        publications.labels,
        publications.objects,
        publications.sorts,
        publications.keys,
        publications.ranks,
    )


def room_for(laid: Laid) -> Room:
    """Room for the longest shape."""
    longest = int(np.diff(laid.offsets).max(initial=0)) + 1
    return Room(np.empty(MAX_VARIABLES, np.int64), *(np.zeros(longest, np.int64) for _ in range(3)))


@kernel
def order_edges(offsets: Array, nodes: Array) -> None:
    """Edges without variables first, then always one with the fewest variables that are not known yet."""
    for shape in range(len(offsets) - 1):
        known = np.uint64(0)
        for place in range(offsets[shape], offsets[shape + 1]):
            best, fewest = place, 9
            for edge in range(place, offsets[shape + 1]):
                unknown = 0
                for part in range(3):
                    node = nodes[edge, part]
                    if node < 0 and (known >> np.uint64(-1 - node)) & np.uint64(1) == 0:
                        unknown += 1
                if unknown < fewest:
                    best, fewest = edge, unknown
            for part in range(3):
                node = nodes[best, part]
                nodes[best, part] = nodes[place, part]
                nodes[place, part] = node
                if node < 0:
                    known |= np.uint64(1) << np.uint64(-1 - node)


@step
def satisfies(term: Number, relation: Number, bound: Number, sorts: Array, keys: Array, ranks: Array) -> bool:
    """Whether a term stands in a relation to a plan's term: SPARQL's error is no
    (`algebra.graphs.rdf_terms.compare_terms`).
    """
    left, right = sorts[term], sorts[bound]
    if relation < 2:
        if left > _TAGGED and right > _TAGGED and (left == _OTHER or right == _OTHER):
            return bool(relation == 0 and term == bound)
        equal = left == right
        if left < _TEXT:
            equal = equal and term == bound
        elif left == _TEXT:
            equal = equal and ranks[term] == ranks[bound]
        else:
            equal = equal and keys[term] == keys[bound]
        return bool(equal == (relation == 0))
    if left != right or left < _TEXT:
        return False
    first = float(ranks[term]) if left == _TEXT else float(keys[term])
    second = float(ranks[bound]) if left == _TEXT else float(keys[bound])
    if relation == 2:
        return first < second
    if relation == 3:
        return first <= second
    if relation == 4:
        return first > second
    return first >= second


@step
def least(values: Array, low: Number, high: Number, wanted: Number) -> Number:
    """The first place of ascending values that is not below the wanted one."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@step
def known_node(node: Number, binding: Array) -> Number:
    """The term that a node must be, or FREE."""
    return np.int64(node) if node >= 0 else binding[-1 - node]


@step
def triple_range(
    edge: Number, nodes: Array, binding: Array, subjects: Array, labels: Array, first: Number, last: Number
) -> tuple[Number, Number]:
    """The triples among which an edge must lie: those with its label and subject, as far as these are known."""
    label = known_node(nodes[edge, 1], binding)
    if label != FREE:
        first = least(labels, first, last, label)
        last = least(labels, first, last, label + 1)
        subject = known_node(nodes[edge, 0], binding)
        if subject != FREE:
            first = least(subjects, first, last, subject)
            last = least(subjects, first, last, subject + 1)
    return first, last


@step
def allowed(
    variable: Number,
    term: Number,
    first: Number,
    last: Number,
    constraints: Array,
    sorts: Array,
    keys: Array,
    ranks: Array,
) -> bool:
    """Whether a term satisfies all constraints on a variable."""
    for place in range(first, last):
        if constraints[place, 0] == variable and not satisfies(
            term, constraints[place, 1], constraints[place, 2], sorts, keys, ranks
        ):
            return False
    return True


@step
def lay(pattern: Number, publication: Number, early: bool, laid: Laid, triples: Triples, room: Room) -> bool:
    """Whether a pattern has a binding on a publication; constraints are asked `early`, or when all edges are laid."""
    edge_offsets, nodes, pattern_shapes, constraint_offsets, constraints = laid
    triple_offsets, subjects, labels, objects, sorts, keys, ranks = triples
    binding, places, stops, bound = room
    first_edge, last_edge = edge_offsets[pattern_shapes[pattern]], edge_offsets[pattern_shapes[pattern] + 1]
    first, last = np.int64(triple_offsets[publication]), np.int64(triple_offsets[publication + 1])
    asked, asked_end = constraint_offsets[pattern], constraint_offsets[pattern + 1]
    binding[:] = FREE
    depth = 0
    places[0], stops[0] = triple_range(first_edge, nodes, binding, subjects, labels, first, last)
    bound[0] = 0
    while depth >= 0:
        edge = first_edge + depth
        for part in range(3):
            if (bound[depth] >> part) & 1:
                binding[-1 - nodes[edge, part]] = FREE
        bound[depth] = 0
        fits = False
        while places[depth] < stops[depth] and not fits:
            triple = places[depth]
            places[depth] += 1
            fits, taken = True, 0
            for part in range(3):
                node = nodes[edge, part]
                term = np.int64(subjects[triple] if part == 0 else labels[triple] if part == 1 else objects[triple])
                wanted = known_node(node, binding)
                if wanted != FREE:
                    fits = wanted == term
                elif early and not allowed(-1 - node, term, asked, asked_end, constraints, sorts, keys, ranks):
                    fits = False
                else:
                    binding[-1 - node] = term
                    taken |= 1 << part
                if not fits:
                    break
            if fits:
                bound[depth] = taken
            else:
                for part in range(3):
                    if (taken >> part) & 1:
                        binding[-1 - nodes[edge, part]] = FREE
        if not fits:
            depth -= 1
        elif edge + 1 < last_edge:
            depth += 1
            places[depth], stops[depth] = triple_range(edge + 1, nodes, binding, subjects, labels, first, last)
            bound[depth] = 0
        else:
            holds = True
            if not early:
                for place in range(asked, asked_end):
                    term = binding[constraints[place, 0]]
                    holds = holds and satisfies(
                        term, constraints[place, 1], constraints[place, 2], sorts, keys, ranks
                    )
            if holds:
                return True
    return False
