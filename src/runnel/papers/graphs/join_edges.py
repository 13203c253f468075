"""Join the edges of one pattern with the triples of one publication, edge by edge, and check constraints.

In: a shape's edges in join order, the constraints of a pattern, the triples of a publication. Out: whether a binding
exists under which all edges are triples and all constraints hold.
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
"""Marks a variable that is not bound yet."""

_TAGGED, _OTHER, _TEXT = int(Sort.TAGGED), int(Sort.OTHER), int(Sort.TEXT)


class JoinOrders(NamedTuple):
    """The shapes of a table in join order. Shape i has the rows of `nodes` from offsets[i] to offsets[i + 1]."""

    offsets: Array
    nodes: Array
    pattern_shapes: Array
    constraint_offsets: Array
    constraints: Array


class Triples(NamedTuple):
    """The triples of a batch, and the sorts, keys and ranks of its terms."""

    offsets: Array
    subjects: Array
    labels: Array
    objects: Array
    sorts: Array
    keys: Array
    ranks: Array


class JoinState(NamedTuple):
    """The state of a join: the binding, and for every edge its next and last triple and the parts it bound."""

    binding: Array
    next_triples: Array
    stops: Array
    bound: Array


def order_shapes(table: PatternTable) -> JoinOrders:
    """Order the edges of each shape so that each edge has as many bound variables as possible."""
    offsets = row_offsets(table.shape_edges.lengths // EDGE)
    nodes = table.shape_edges.values.reshape(-1, EDGE).copy()
    order_edges(offsets, nodes)
    constraints = table.constraints.values.reshape(-1, CONSTRAINT)
    return JoinOrders(offsets, nodes, table.pattern_shapes, table.constraints.offsets // CONSTRAINT, constraints)


def triple_arrays(publications: Publications) -> Triples:
    """Return the arrays of a batch for the join."""
    return Triples(
        publications.offsets,
        publications.subjects,
        publications.labels,
        publications.objects,
        publications.sorts,
        publications.keys,
        publications.ranks,
    )


def make_state(orders: JoinOrders) -> JoinState:
    """Allocate the state for the longest shape."""
    longest = int(np.diff(orders.offsets).max(initial=0)) + 1
    return JoinState(np.empty(MAX_VARIABLES, np.int64), *(np.zeros(longest, np.int64) for _ in range(3)))


@kernel
def order_edges(offsets: Array, nodes: Array) -> None:
    """Put edges without variables first, then repeatedly an edge with the fewest unbound variables."""
    for shape in range(len(offsets) - 1):
        known = np.uint64(0)
        for position in range(offsets[shape], offsets[shape + 1]):
            best, fewest = position, 9
            for edge in range(position, offsets[shape + 1]):
                unknown = 0
                for part in range(3):
                    node = nodes[edge, part]
                    if node < 0 and (known >> np.uint64(-1 - node)) & np.uint64(1) == 0:
                        unknown += 1
                if unknown < fewest:
                    best, fewest = edge, unknown
            for part in range(3):
                node = nodes[best, part]
                nodes[best, part] = nodes[position, part]
                nodes[position, part] = node
                if node < 0:
                    known |= np.uint64(1) << np.uint64(-1 - node)


@step
def satisfies(term: Number, relation: Number, bound: Number, sorts: Array, keys: Array, ranks: Array) -> bool:
    """Whether a term stands in a relation to a plan's term (`algebra.graphs.rdf_terms.compare_terms`).

    A comparison that is an error in SPARQL does not hold.
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
def lower_bound(values: Array, low: Number, high: Number, wanted: Number) -> Number:
    """Return the first index at which ascending values are not below `wanted`."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@step
def known_node(node: Number, binding: Array) -> Number:
    """Return the term that a node must equal, or FREE."""
    return np.int64(node) if node >= 0 else binding[-1 - node]


@step
def triple_range(
    edge: Number, nodes: Array, binding: Array, subjects: Array, labels: Array, first: Number, last: Number
) -> tuple[Number, Number]:
    """Return the range of triples that an edge may match: those with its label and subject, if these are bound."""
    label = known_node(nodes[edge, 1], binding)
    if label != FREE:
        first = lower_bound(labels, first, last, label)
        last = lower_bound(labels, first, last, label + 1)
        subject = known_node(nodes[edge, 0], binding)
        if subject != FREE:
            first = lower_bound(subjects, first, last, subject)
            last = lower_bound(subjects, first, last, subject + 1)
    return first, last


@step
def satisfies_all(
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
    for index in range(first, last):
        if constraints[index, 0] == variable and not satisfies(
            term, constraints[index, 1], constraints[index, 2], sorts, keys, ranks
        ):
            return False
    return True


@step
def has_binding(
    pattern: Number, publication: Number, checks_early: bool, orders: JoinOrders, triples: Triples, state: JoinState
) -> bool:
    """Whether a pattern has a binding on a publication.

    Constraints are checked when a variable is bound (`checks_early`), or when all edges are joined.
    """
    edge_offsets, nodes, pattern_shapes, constraint_offsets, constraints = orders
    triple_offsets, subjects, labels, objects, sorts, keys, ranks = triples
    binding, next_triples, stops, bound = state
    first_edge, last_edge = edge_offsets[pattern_shapes[pattern]], edge_offsets[pattern_shapes[pattern] + 1]
    first, last = np.int64(triple_offsets[publication]), np.int64(triple_offsets[publication + 1])
    first_constraint, last_constraint = constraint_offsets[pattern], constraint_offsets[pattern + 1]
    binding[:] = FREE
    depth = 0
    next_triples[0], stops[0] = triple_range(first_edge, nodes, binding, subjects, labels, first, last)
    bound[0] = 0
    while depth >= 0:
        edge = first_edge + depth
        for part in range(3):
            if (bound[depth] >> part) & 1:
                binding[-1 - nodes[edge, part]] = FREE
        bound[depth] = 0
        fits = False
        while next_triples[depth] < stops[depth] and not fits:
            triple = next_triples[depth]
            next_triples[depth] += 1
            fits, bound_parts = True, 0
            for part in range(3):
                node = nodes[edge, part]
                term = np.int64(subjects[triple] if part == 0 else labels[triple] if part == 1 else objects[triple])
                wanted = known_node(node, binding)
                if wanted != FREE:
                    fits = wanted == term
                elif checks_early and not satisfies_all(
                    -1 - node, term, first_constraint, last_constraint, constraints, sorts, keys, ranks
                ):
                    fits = False
                else:
                    binding[-1 - node] = term
                    bound_parts |= 1 << part
                if not fits:
                    break
            if fits:
                bound[depth] = bound_parts
            else:
                for part in range(3):
                    if (bound_parts >> part) & 1:
                        binding[-1 - nodes[edge, part]] = FREE
        if not fits:
            depth -= 1
        elif edge + 1 < last_edge:
            depth += 1
            next_triples[depth], stops[depth] = triple_range(edge + 1, nodes, binding, subjects, labels, first, last)
            bound[depth] = 0
        else:
            holds = True
            if not checks_early:
                for index in range(first_constraint, last_constraint):
                    term = binding[constraints[index, 0]]
                    holds = holds and satisfies(
                        term, constraints[index, 1], constraints[index, 2], sorts, keys, ranks
                    )
            if holds:
                return True
    return False
