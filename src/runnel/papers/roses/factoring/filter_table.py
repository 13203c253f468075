"""Build filters from a predicate table: the clauses that subsume others, their selectivities, and trees of sources.

In: a logical plan and the share of all items that satisfies each atom. Out: the filter tree of a source. It refers to
predicates and clauses by their numbers in the table, to which wider clauses are added.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import Atom
from runnel.arrays import Array, Rows, offsets_of
from runnel.optimizer.subsumption.wider_clauses import wider_clauses
from runnel.optimizer.subsumption.wider_literals import wider_literals
from runnel.papers.roses.factoring.candidates import FactoringSettings
from runnel.papers.roses.factoring.factor_filters import factor_filters
from runnel.papers.roses.factoring.filter_tree import FilterTree
from runnel.papers.roses.factoring.filters import Filters
from runnel.papers.roses.factoring.widen_clauses import widen_clauses
from runnel.plan.logical_plan import LogicalPlan

UNKNOWN_SHARE = 0.3
"""The assumed selectivity of an atom without an estimate."""


@dataclass(frozen=True)
class FilterTable:
    """The clauses of a predicate table: their selectivities, and the wider clauses of each.

    `clauses` are those of the table, in their order, followed by wider clauses that only filters use.
    """

    predicates: Rows
    clauses: Rows
    selectivities: Array
    wider: Rows
    first_union: int

    @staticmethod
    def of(logical: LogicalPlan, shares: Array | None = None) -> FilterTable:
        """Build the table of a logical plan. `shares` is the share of all items that satisfies each atom.

        A share of 1 means that there is no estimate.
        """
        known = np.ones(len(logical.atoms)) if shares is None else np.asarray(shares, dtype=np.float64)
        likely = np.where(known >= 1.0, UNKNOWN_SHARE, known)
        clauses = widen_clauses(logical.clauses, likely)
        rates = clause_rates(clauses, likely)
        atoms = [
            cast(Atom, decode_expression(json.loads(logical.atoms.text(atom)))) for atom in range(len(logical.atoms))
        ]
        wider = wider_clauses(clauses, wider_literals(atoms), rates)
        return FilterTable(logical.predicates, clauses, rates, wider, len(logical.clauses))

    def tree(self, predicates: Array, settings: FactoringSettings | None = None) -> FilterTree:
        """Build the filter tree of predicates, given by their numbers in the table."""
        _, clauses = self.predicates.expand(predicates)
        chosen = Rows(offsets_of(self.predicates.lengths[predicates]), clauses)
        tree = factor_filters(
            Filters.of(chosen, self.selectivities, self.wider, first_union=self.first_union), settings
        )
        named = Rows(tree.predicates.offsets, predicates[tree.predicates.values].astype(np.int32))
        return replace(tree, predicates=named)


def clause_rates(clauses: Rows, shares: Array) -> Array:
    """Return the share of all items that satisfies each clause, assuming that its literals are independent.

    >>> clause_rates(Rows.of([[0], [1], [0, 2]]), np.array([0.5, 0.2])).tolist()
    [0.5, 0.5, 0.6]
    """
    atoms = shares[clauses.values >> 1]
    failing = np.where(clauses.values & 1, atoms, 1.0 - atoms)
    nonempty = np.flatnonzero(clauses.lengths)
    rates = np.zeros(len(clauses), dtype=np.float64)
    if len(nonempty):
        rates[nonempty] = 1.0 - np.multiply.reduceat(failing, clauses.offsets[nonempty])
    return rates


def predicates_of(logical: LogicalPlan, source: int) -> Array:
    """Return the numbers of the predicates of all queries on a source."""
    owners = np.repeat(np.arange(len(logical.scopes)), logical.scopes.lengths)
    scoped = np.zeros(len(logical.scopes), dtype=bool)
    scoped[owners[logical.scopes.values == source]] = True
    return np.unique(logical.target_predicates[scoped[logical.target_scopes]]).astype(np.int64)
