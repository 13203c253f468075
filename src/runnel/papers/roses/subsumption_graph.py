"""The explicit predicate subsumption graph of one source (RoSeS §4.3), for small inputs and for comparison.

Its nodes are the predicates, and every set of clauses that subsumes at least two of them. (A set that subsumes a
single predicate improves no plan.) Its edges are all pairs of a node and a node that it subsumes. The weight of an
edge is the selectivity of its first node. Sets of nodes are integers with one bit per node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Rows
from runnel.papers.roses.factoring.candidates import NO_PREDICATE, FactoringSettings, find_candidates
from runnel.papers.roses.factoring.factor_filters import FactoringProblem
from runnel.papers.roses.factoring.filter_tree import FilterTree
from runnel.papers.roses.factoring.filters import Filters

SOURCE = -1


@dataclass(frozen=True)
class SubsumptionGraph:
    """The graph. The first nodes are the predicates. `below[x]` is the set of nodes that x strictly subsumes.

    `order` is the rank of a node by selectivity, so that every algorithm breaks ties in the same way.
    """

    problem: FactoringProblem
    inserted: Rows
    rates: tuple[float, ...]
    order: tuple[int, ...]
    below: tuple[int, ...]

    @property
    def terminals(self) -> int:
        """The set of all predicates."""
        return (1 << len(self.problem.predicates)) - 1

    def tree(self, parents: dict[int, int]) -> FilterTree:
        """Build the tree in which the nodes have these parents. Nodes without a parent are not in it."""
        count = len(self.problem.predicates)
        kept = [node for node in sorted(parents) if node >= count]
        numbers = {node: count + index for index, node in enumerate(kept)} | {SOURCE: SOURCE}
        nodes = [*range(count), *kept]
        above = np.array([numbers.get(parents[node], parents[node]) for node in nodes], dtype=np.int64)
        sets = Rows.of(self.inserted.row(node - count).tolist() for node in kept)
        return self.problem.tree(above, sets, np.array([self.rates[node] for node in nodes], dtype=np.float64))


def build_graph(filters: Filters, settings: FactoringSettings | None = None) -> SubsumptionGraph:
    """Build the subsumption graph of filters. Time and memory grow with the square of the number of nodes.

    >>> graph = build_graph(Filters.of(Rows.of([[0, 1], [0, 2]]), np.array([0.5, 0.1, 0.1])))
    >>> list(graph.inserted.lists()), [bin(nodes) for nodes in graph.below]
    ([[0]], ['0b0', '0b0', '0b11'])
    """
    problem = FactoringProblem.of(filters)
    candidates = find_candidates(problem.predicates, filters, settings)
    chosen = np.flatnonzero(candidates.owners == NO_PREDICATE)
    inserted = candidates.sets(chosen)
    ranks = dict(zip(candidates.owners.tolist(), range(len(candidates)), strict=True))
    order = [ranks.get(predicate, -1) for predicate in range(len(problem.predicates))]
    sets = [*problem.predicates.lists(), *inserted.lists()]
    return SubsumptionGraph(
        problem=problem,
        inserted=inserted,
        rates=(*candidates.predicate_selectivities.tolist(), *candidates.selectivities[chosen].tolist()),
        order=(*order, *chosen.tolist()),
        below=tuple(_below(sets, filters.wider)),
    )


def _below(sets: list[list[int]], wider: Rows) -> list[int]:
    """Return for every set the sets that it strictly subsumes.

    A set subsumes another one if each of its clauses is in the other or is wider than a clause of the other.
    """
    closures = [_bits(_closure(clauses, wider)) for clauses in sets]
    masks = [_bits(clauses) for clauses in sets]
    subsumed = []
    for node, mask in enumerate(masks):
        inside = 0
        for other, closure in enumerate(closures):
            if not mask & ~closure and other != node:
                inside |= 1 << other
        subsumed.append(inside)
    return subsumed


def _closure(clauses: list[int], wider: Rows) -> set[int]:
    known = set(clauses)
    stack = list(clauses)
    while stack:
        fresh = [clause for clause in wider.row(stack.pop()).tolist() if clause not in known]
        known.update(fresh)
        stack.extend(fresh)
    return known


def _bits(numbers: list[int] | set[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def members(nodes: int) -> list[int]:
    """Return the nodes of a set in ascending order.

    >>> members(0b1010)
    [1, 3]
    """
    numbers = []
    while nodes:
        lowest = nodes & -nodes
        numbers.append(lowest.bit_length() - 1)
        nodes ^= lowest
    return numbers
