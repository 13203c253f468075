"""The index of one part of a plan: candidates by a cheap sound index, then the exact check, on arrays.

For every chunk of a batch: the items' keys lead to the predicates anchored there; candidates
are checked clause by clause; predicates that hold lead to targets, targets to queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows
from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.item_keys import KeyFinder
from runnel.matching.filters.atoms.truth import FALSE, TRUE, UNKNOWN, BatchTruth, formula_order
from runnel.matching.filters.index.index_layout import layout, stored_atoms
from runnel.matching.filters.index.plan_words import PlanWords
from runnel.matching.filters.index.reach import Reach
from runnel.matching.patterns.plan_patterns import load_patterns
from runnel.model.match import Failure
from runnel.plan.logical_plan import EXACT
from runnel.plan.store import PlanPart


@dataclass(frozen=True)
class CandidateMatches:
    """Pairs of a row and a query (by catalog id) of one chunk, and the failures."""

    rows: Array
    queries: Array
    failures: tuple[Failure, ...] = ()


class PartIndex:
    """The index of one part of a plan, over its mapped arrays."""

    def __init__(self, part: PlanPart, removed: Array) -> None:
        self.logical = part.logical
        self.layout = layout(part.logical, stored_atoms(part))
        self.reach = Reach(part.logical, self.layout.predicate_targets, ~removed)
        self._finder = KeyFinder(self.layout.atoms, load_patterns(part, self.layout.atoms), words=False)
        self._words = PlanWords.of(part, self.layout.atoms)
        self._orders: dict[int, list[int]] = {}

    def match(self, columns: ItemColumns, statistics: MatchStatistics) -> CandidateMatches:
        """The queries of this part that the items match."""
        keys = self._finder.keys(columns)
        self._words.add_keys(columns, keys)
        truth = BatchTruth(self.logical, self.layout.atoms, self.reach.atoms, columns, keys)
        rows, predicates = self._candidates(columns, *keys.candidates())
        statistics.candidates += len(rows)
        verdicts = self._check(rows, predicates, truth, statistics)
        self._check_doubtful(rows, predicates, truth, keys.doubtful_rows(), verdicts)
        statistics.atom_evaluations += truth.evaluations
        held = verdicts == TRUE
        found_rows, queries = self.reach.queries(columns, rows[held], predicates[held])
        unknown = verdicts == UNKNOWN
        failures = self._failures(columns, rows[unknown], predicates[unknown], truth) if unknown.any() else ()
        return CandidateMatches(found_rows, queries, failures)

    def _relevant(self, source: int) -> tuple[Array, Array]:
        """For a source: which predicates some query asks of it, and those of them that no key leads to."""
        mask = self.reach.predicates(source)
        return mask, self.layout.unanchored[mask[self.layout.unanchored]]

    def _candidates(self, columns: ItemColumns, rows: Array, keys: Array) -> tuple[Array, Array]:
        owners, predicates = self.layout.postings.expand(keys)
        rows = rows[owners]
        kept_rows, kept_predicates = [], []
        sources, which = np.unique(columns.feeds, return_inverse=True)
        by_source = Rows.grouped(which[rows], np.arange(len(rows)), len(sources))
        items = Rows.grouped(which, np.arange(len(columns)), len(sources))
        for index, source in enumerate(sources.tolist()):
            mask, always = self._relevant(source)
            chosen = by_source.row(index)
            chosen = chosen[mask[predicates[chosen]]]
            here = items.row(index)
            kept_rows += [rows[chosen], np.repeat(here, len(always))]
            kept_predicates += [predicates[chosen], np.tile(always, len(here))]
        return np.concatenate(kept_rows), np.concatenate(kept_predicates)

    def _check(self, rows: Array, predicates: Array, truth: BatchTruth, statistics: MatchStatistics) -> Array:
        """The verdict on every candidate: the clauses first, those that fail most often in front.

        Then the formula.
        """
        verdicts = np.full(len(rows), TRUE, dtype=np.uint8)
        checks = self.layout.checks
        starts = checks.offsets[predicates]
        lengths = checks.offsets[predicates + 1] - starts
        level = 0
        alive = np.flatnonzero(lengths > level)
        while len(alive):
            statistics.clause_checks += len(alive)
            truths = truth.clauses(rows[alive], checks.values[starts[alive] + level])
            verdicts[alive] = np.minimum(verdicts[alive], truths)
            level += 1
            alive = alive[(truths != FALSE) & (lengths[alive] > level)]
        formulas = self.logical.predicate_formulas[predicates]
        for index in np.flatnonzero((formulas != EXACT) & (verdicts != FALSE)).tolist():
            formula = int(formulas[index])
            verdicts[index] = truth.formula(int(rows[index]), formula, self._order(formula))
        return verdicts

    def _check_doubtful(
        self, rows: Array, predicates: Array, truth: BatchTruth, doubtful: Array, verdicts: Array
    ) -> None:
        """Check all clauses where a key of the row is in doubt: then a key that leads here proves nothing."""
        chosen = np.flatnonzero(np.isin(rows, doubtful) & (verdicts != FALSE)) if len(doubtful) else doubtful
        if len(chosen):
            owners, clauses = self.logical.predicates.expand(predicates[chosen])
            np.minimum.at(verdicts, chosen[owners], truth.clauses(rows[chosen][owners], clauses))

    def _order(self, formula: int) -> list[int]:
        if formula not in self._orders:
            order = formula_order(self.logical.formulas, self.logical.formula_kinds, formula)
            self._orders[formula] = order
        return self._orders[formula]

    def _failures(
        self, columns: ItemColumns, rows: Array, predicates: Array, truth: BatchTruth
    ) -> tuple[Failure, ...]:
        failures = []
        for row, predicate in sorted(set(zip(rows.tolist(), predicates.tolist(), strict=True))):
            reason = next(reason for (where, _), reason in truth.reasons.items() if where == row)
            one = np.array([row]), np.array([predicate])
            failures += [Failure(row, query, reason) for query in self.reach.queries(columns, *one)[1].tolist()]
        return tuple(failures)
