"""From a predicate table to filters: which clauses subsume which, how selective they are, and the trees of sources.

In: a logical plan and the part of all items that satisfies each atom. Out: the filter tree of a source, over the
table's own numbers of predicates, and the numbers of its clauses and of wider ones.
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
"""What an atom lets through of which nothing is known."""


@dataclass(frozen=True)
class FilterTable:
    """The clauses of a predicate table: their selectivities, and the wider clauses of each.

    `clauses` are those of the table, in their order, and behind them wider ones that only filters use.
    """

    predicates: Rows
    clauses: Rows
    selectivities: Array
    wider: Rows
    first_union: int

    @staticmethod
    def of(logical: LogicalPlan, shares: Array | None = None) -> FilterTable:
        """The table of a logical plan; `shares` is the part of all items that satisfies each atom.

        A share of 1 says that nothing is known of the atom.
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
        """The filter tree of some predicates, by their numbers in the table."""
        _, clauses = self.predicates.expand(predicates)
        chosen = Rows(offsets_of(self.predicates.lengths[predicates]), clauses)
        tree = factor_filters(
            Filters.of(chosen, self.selectivities, self.wider, first_union=self.first_union), settings
        )
        named = Rows(tree.predicates.offsets, predicates[tree.predicates.values].astype(np.int32))
        return replace(tree, predicates=named)


def clause_rates(clauses: Rows, shares: Array) -> Array:
    """The part of all items that satisfies each clause, its literals taken to be independent.

    >>> clause_rates(Rows.of([[0], [1], [0, 2]]), np.array([0.5, 0.2])).tolist()
    [0.5, 0.5, 0.6]
    """
    atoms = shares[clauses.values >> 1]
    missed = np.where(clauses.values & 1, atoms, 1.0 - atoms)
    filled = np.flatnonzero(clauses.lengths)
    rates = np.zeros(len(clauses), dtype=np.float64)
    if len(filled):
        rates[filled] = 1.0 - np.multiply.reduceat(missed, clauses.offsets[filled])
    return rates


def predicates_of(logical: LogicalPlan, source: int) -> Array:
    """The numbers of the predicates that some query asks of a source."""
    owners = np.repeat(np.arange(len(logical.scopes)), logical.scopes.lengths)
    scoped = np.zeros(len(logical.scopes), dtype=bool)
    scoped[owners[logical.scopes.values == source]] = True
    return np.unique(logical.target_predicates[scoped[logical.target_scopes]]).astype(np.int64)
