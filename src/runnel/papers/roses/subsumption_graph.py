"""The predicate subsumption graph of one source, explicit (RoSeS §4.3): for small inputs and for comparison.

Its nodes are the predicates and every set of clauses that subsumes at least two of them (one that subsumes a single
predicate can serve no plan); its edges are all pairs of a node and a node that it subsumes. An edge weighs what its
first node lets through. Sets of nodes are integers, a bit for each.
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
    """The graph. The first nodes are the predicates; `below[x]` are the nodes that x strictly subsumes.

    `order` is the place of a node among all by selectivity, so that every algorithm breaks ties alike.
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
        """The tree in which the nodes have these parents; nodes without one are not in it."""
        count = len(self.problem.predicates)
        kept = [node for node in sorted(parents) if node >= count]
        numbers = {node: count + place for place, node in enumerate(kept)} | {SOURCE: SOURCE}
        nodes = [*range(count), *kept]
        above = np.array([numbers.get(parents[node], parents[node]) for node in nodes], dtype=np.int64)
        sets = Rows.of(self.inserted.row(node - count).tolist() for node in kept)
        return self.problem.tree(above, sets, np.array([self.rates[node] for node in nodes], dtype=np.float64))


def build_graph(filters: Filters, settings: FactoringSettings | None = None) -> SubsumptionGraph:
    """The subsumption graph of filters; time and memory grow with the square of its nodes.

    >>> graph = build_graph(Filters.of(Rows.of([[0, 1], [0, 2]]), np.array([0.5, 0.1, 0.1])))
    >>> list(graph.inserted.lists()), [bin(one) for one in graph.below]
    ([[0]], ['0b0', '0b0', '0b11'])
    """
    problem = FactoringProblem.of(filters)
    found = find_candidates(problem.predicates, filters, settings)
    chosen = np.flatnonzero(found.owners == NO_PREDICATE)
    inserted = found.sets(chosen)
    places = dict(zip(found.owners.tolist(), range(len(found)), strict=True))
    order = [places.get(predicate, -1) for predicate in range(len(problem.predicates))]
    sets = [*problem.predicates.lists(), *inserted.lists()]
    return SubsumptionGraph(
        problem=problem,
        inserted=inserted,
        rates=(*found.predicate_selectivities.tolist(), *found.selectivities[chosen].tolist()),
        order=(*order, *chosen.tolist()),
        below=tuple(_below(sets, filters.wider)),
    )


def _below(sets: list[list[int]], wider: Rows) -> list[int]:
    """For every set the sets that it strictly subsumes: each of its clauses is one of theirs, or wider than one."""
    closures = [_bits(_closure(one, wider)) for one in sets]
    masks = [_bits(one) for one in sets]
    found = []
    for node, mask in enumerate(masks):
        inside = 0
        for other, closure in enumerate(closures):
            if not mask & ~closure and other != node:
                inside |= 1 << other
        found.append(inside)
    return found


def _closure(clauses: list[int], wider: Rows) -> set[int]:
    known = set(clauses)
    waiting = list(clauses)
    while waiting:
        fresh = [one for one in wider.row(waiting.pop()).tolist() if one not in known]
        known.update(fresh)
        waiting.extend(fresh)
    return known


def _bits(numbers: list[int] | set[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def members(nodes: int) -> list[int]:
    """The nodes of a set, ascending.

    >>> members(0b1010)
    [1, 3]
    """
    found = []
    while nodes:
        lowest = nodes & -nodes
        found.append(lowest.bit_length() - 1)
        nodes ^= lowest
    return found
