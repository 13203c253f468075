"""Factor the filters of one source into a filter tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.papers.roses.factoring.assemble_tree import assemble_tree
from runnel.papers.roses.factoring.border import grow_border
from runnel.papers.roses.factoring.candidates import Candidates, FactoringSettings, find_candidates
from runnel.papers.roses.factoring.filter_nodes import ABSENT, number_nodes
from runnel.papers.roses.factoring.filter_tree import FilterTree
from runnel.papers.roses.factoring.filters import Filters, distinct_rows, reduced
from runnel.papers.roses.factoring.refine_plan import refine_plan


@dataclass(frozen=True)
class FactoringProblem:
    """Distinct predicates, each a set of clauses without redundant ones.

    `given` has the original predicates that each represents. Its last row has the predicates without clauses, which
    every item of the source satisfies.
    """

    filters: Filters
    predicates: Rows
    given: Rows

    @staticmethod
    def of(filters: Filters) -> FactoringProblem:
        """Reduce the predicates of filters, and merge equal ones."""
        sets, numbers = distinct_rows(reduced(filters))
        nonempty = np.flatnonzero(sets.lengths)
        positions = np.full(len(sets), len(nonempty), dtype=np.int64)
        positions[nonempty] = np.arange(len(nonempty))
        chosen = Rows(offsets_of(sets.lengths[nonempty]), sets.expand(nonempty)[1])
        given = Rows.grouped(positions[numbers], np.arange(len(numbers), dtype=np.int32), len(nonempty) + 1)
        return FactoringProblem(filters, chosen, given)

    def tree(self, parents: Array, inserted: Rows, rates: Array) -> FilterTree:
        """Build the tree of predicates and inserted filters from their parents (negative: the source) and rates."""
        sets = Rows(
            np.concatenate([self.predicates.offsets, self.predicates.offsets[-1] + inserted.offsets[1:]]),
            np.concatenate([self.predicates.values, inserted.values]),
        )
        lengths = np.concatenate(
            [self.given.lengths[:-1], np.zeros(len(inserted), np.int64), self.given.lengths[-1:]]
        )
        decided = Rows(offsets_of(lengths), self.given.values)
        return assemble_tree(parents, sets, decided, self.filters, rates)


def factor_filters(
    filters: Filters, settings: FactoringSettings | None = None, *, refined: bool = True
) -> FilterTree:
    """Build the filter tree of predicates by VCA with VCB (RoSeS §5), and refine it if `refined` is true.

    >>> filters = Filters.of(Rows.of([[0, 1], [0, 2], [0, 2, 3]]), np.array([0.1, 0.1, 0.1, 0.1]))
    >>> tree = factor_filters(filters)
    >>> tree.parents.tolist(), list(tree.clauses.lists()), tree.unfactored_cost, round(tree.cost, 3)
    ([-1, 0, 1, 1, 3], [[], [0], [1], [2], [3]], 3.0, 1.21)
    """
    limits = settings or FactoringSettings()
    problem = FactoringProblem.of(filters)
    candidates = find_candidates(problem.predicates, filters, limits)
    nodes = number_nodes(candidates)
    parents = grow_border(nodes)
    if refined:
        parents = refine_plan(nodes, parents, limits.rounds)
    return _build_tree(problem, candidates, parents)


def _build_tree(problem: FactoringProblem, candidates: Candidates, parents: Array) -> FilterTree:
    """Build the tree of the nodes that are in the plan."""
    count = len(problem.predicates)
    chosen = np.flatnonzero(parents[count:] != ABSENT)
    numbers = np.concatenate([np.arange(count), np.full(len(candidates), -1, dtype=np.int64)])
    numbers[count + chosen] = count + np.arange(len(chosen))
    chosen_parents = np.concatenate([parents[:count], parents[count + chosen]])
    above = np.where(chosen_parents < 0, chosen_parents, numbers[chosen_parents])
    rates = np.concatenate([candidates.predicate_selectivities, candidates.selectivities[chosen]])
    return problem.tree(above, candidates.sets(chosen), rates)
