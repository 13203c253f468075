"""The anchor index of one plan part at match time.

For every chunk of a batch: the items' keys lead to the predicates that are anchored at them, these candidates are
checked clause by clause, and satisfied predicates lead to targets and their queries.
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
from runnel.matching.filters.index.part_queries import PartQueries
from runnel.matching.filters.index.plan_words import PlanWords
from runnel.matching.patterns.plan_patterns import load_patterns
from runnel.model.match import Failure
from runnel.plan.logical_plan import EXACT
from runnel.plan.store import PlanPart


@dataclass(frozen=True)
class CandidateMatches:
    """The matches of one chunk as pairs of a row and a query's catalog id, and the failures."""

    rows: Array
    queries: Array
    failures: tuple[Failure, ...] = ()


class PartIndex:
    """Matches chunks with the anchor index of one plan part."""

    def __init__(self, part: PlanPart, removed: Array) -> None:
        self.logical = part.logical
        self.layout = layout(part.logical, stored_atoms(part))
        self.part_queries = PartQueries(part.logical, self.layout.predicate_targets, ~removed)
        self._finder = KeyFinder(self.layout.atoms, load_patterns(part, self.layout.atoms), words=False)
        self._words = PlanWords.of(part, self.layout.atoms)
        self._orders: dict[int, list[int]] = {}

    def match(self, columns: ItemColumns, statistics: MatchStatistics) -> CandidateMatches:
        """Return the queries of this part that the items match."""
        keys = self._finder.keys(columns)
        self._words.add_keys(columns, keys)
        truth = BatchTruth(self.logical, self.layout.atoms, self.part_queries.atoms, columns, keys)
        rows, predicates = self._candidates(columns, *keys.candidates())
        statistics.candidates += len(rows)
        verdicts = self._check(rows, predicates, truth, statistics)
        self._check_doubtful(rows, predicates, truth, keys.doubtful_rows(), verdicts)
        statistics.atom_evaluations += truth.evaluations
        is_true = verdicts == TRUE
        matched_rows, queries = self.part_queries.queries(columns, rows[is_true], predicates[is_true])
        is_unknown = verdicts == UNKNOWN
        failures = (
            self._failures(columns, rows[is_unknown], predicates[is_unknown], truth) if is_unknown.any() else ()
        )
        return CandidateMatches(matched_rows, queries, failures)

    def _relevant_predicates(self, source: int) -> tuple[Array, Array]:
        """Return a mask of the predicates that queries on this source use, and those of them without an anchor."""
        mask = self.part_queries.predicates(source)
        return mask, self.layout.unanchored[mask[self.layout.unanchored]]

    def _candidates(self, columns: ItemColumns, rows: Array, keys: Array) -> tuple[Array, Array]:
        """Return the pairs of row and predicate to check: those that keys lead to, and those without an anchor."""
        owners, predicates = self.layout.postings.expand(keys)
        rows = rows[owners]
        candidate_rows, candidate_predicates = [], []
        sources, source_indices = np.unique(columns.feeds, return_inverse=True)
        pairs_by_source = Rows.grouped(source_indices[rows], np.arange(len(rows)), len(sources))
        rows_by_source = Rows.grouped(source_indices, np.arange(len(columns)), len(sources))
        for index, source in enumerate(sources.tolist()):
            is_relevant, unanchored = self._relevant_predicates(source)
            pairs = pairs_by_source.row(index)
            pairs = pairs[is_relevant[predicates[pairs]]]
            source_rows = rows_by_source.row(index)
            candidate_rows += [rows[pairs], np.repeat(source_rows, len(unanchored))]
            candidate_predicates += [predicates[pairs], np.tile(unanchored, len(source_rows))]
        return np.concatenate(candidate_rows), np.concatenate(candidate_predicates)

    def _check(self, rows: Array, predicates: Array, truth: BatchTruth, statistics: MatchStatistics) -> Array:
        """Return the truth of every candidate: check its clauses, the most selective first, then its formula."""
        verdicts = np.full(len(rows), TRUE, dtype=np.uint8)
        checks = self.layout.checks
        starts = checks.offsets[predicates]
        lengths = checks.offsets[predicates + 1] - starts
        level = 0
        remaining = np.flatnonzero(lengths > level)
        while len(remaining):
            statistics.clause_checks += len(remaining)
            truths = truth.clauses(rows[remaining], checks.values[starts[remaining] + level])
            verdicts[remaining] = np.minimum(verdicts[remaining], truths)
            level += 1
            remaining = remaining[(truths != FALSE) & (lengths[remaining] > level)]
        formulas = self.logical.predicate_formulas[predicates]
        for index in np.flatnonzero((formulas != EXACT) & (verdicts != FALSE)).tolist():
            formula = int(formulas[index])
            verdicts[index] = truth.formula(int(rows[index]), formula, self._formula_order(formula))
        return verdicts

    def _check_doubtful(
        self, rows: Array, predicates: Array, truth: BatchTruth, doubtful: Array, verdicts: Array
    ) -> None:
        """Check all clauses for the rows with undecided keys, because an undecided key does not prove the anchor."""
        selected = np.flatnonzero(np.isin(rows, doubtful) & (verdicts != FALSE)) if len(doubtful) else doubtful
        if len(selected):
            owners, clauses = self.logical.predicates.expand(predicates[selected])
            np.minimum.at(verdicts, selected[owners], truth.clauses(rows[selected][owners], clauses))

    def _formula_order(self, formula: int) -> list[int]:
        if formula not in self._orders:
            order = formula_order(self.logical.formulas, self.logical.formula_kinds, formula)
            self._orders[formula] = order
        return self._orders[formula]

    def _failures(
        self, columns: ItemColumns, rows: Array, predicates: Array, truth: BatchTruth
    ) -> tuple[Failure, ...]:
        failures = []
        for row, predicate in sorted(set(zip(rows.tolist(), predicates.tolist(), strict=True))):
            reason = next(reason for (failed_row, _), reason in truth.reasons.items() if failed_row == row)
            _, queries = self.part_queries.queries(columns, np.array([row]), np.array([predicate]))
            failures += [Failure(row, query, reason) for query in queries.tolist()]
        return tuple(failures)
