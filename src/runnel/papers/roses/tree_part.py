"""Match one part of a plan with filter trees: the items of a chunk descend the tree of their source level by level.

Most atoms are decided for all items of a chunk at once, from the items' keys and numeric values; the result is a bit
mask over the items. Atoms that only the reference evaluator can decide are evaluated for the items that have passed
all other filters so far. If an evaluation raises an error, the item passes the filter, and its predicates are
evaluated individually at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.arrays import Array, offsets_of
from runnel.bounded_cache import BoundedCache
from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.atoms.atom_tests import TestKind
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.item_keys import BatchKeys, KeyFinder
from runnel.matching.filters.atoms.truth import TRUE, UNKNOWN, BatchTruth, formula_order
from runnel.matching.filters.index.index_layout import stored_atoms, targets_of_predicates
from runnel.matching.filters.index.part_index import CandidateMatches, PartIndex
from runnel.matching.filters.index.part_queries import PartQueries
from runnel.matching.filters.index.plan_words import PlanWords
from runnel.matching.patterns.plan_patterns import load_patterns
from runnel.model.match import Failure
from runnel.papers.roses.factoring.candidates import FactoringSettings
from runnel.papers.roses.factoring.filter_table import FilterTable
from runnel.papers.roses.factoring.filter_tree import ROOT, FilterTree
from runnel.papers.roses.tree_kernel import (
    EXTRA,
    KEYED,
    RANGED,
    ChunkArrays,
    TreeArrays,
    gather_pairs,
    mark_keys,
    need_extras,
    pass_level,
)
from runnel.plan.logical_plan import EXACT
from runnel.plan.store import PlanPart

_MAX_CACHED_NODES = 1 << 22
"""The maximum total number of nodes in the cached trees. Other trees are built again when an item needs them."""


@dataclass(frozen=True)
class SourceTree:
    """A filter tree for kernels.

    The nodes of depth d are those from `levels[d]` to `levels[d + 1]`. `needs_extras` marks the depths with extra
    atoms, and `ends` are the nodes that decide predicates.
    """

    tree: FilterTree
    arrays: TreeArrays
    levels: Array
    needs_extras: Array
    ends: Array


@dataclass
class _Chunk:
    """A chunk of items: masks of their keys and values, and the truth of extra atoms as far as it is known."""

    arrays: ChunkArrays
    truth: BatchTruth
    known: Array

    def evaluate(self, needed: Array, atoms: Array) -> None:
        """Evaluate extra atoms for the items that need them and whose truth is not known yet."""
        open_masks = needed & ~self.known
        for extra in np.flatnonzero(open_masks.any(axis=1)).tolist():
            rows = _rows(open_masks[extra])
            truths = self.truth.literals(rows, np.full(len(rows), 2 * atoms[extra], dtype=np.int64))
            _mark(self.arrays.true[extra], rows[truths == TRUE])
            _mark(self.arrays.possible[extra], rows[truths >= UNKNOWN])
        self.known |= needed


class TreePart:
    """The filter trees of one part of a plan, each built when a source first needs it."""

    def __init__(
        self, part: PlanPart, removed: Array, shares: Array | None, settings: FactoringSettings | None
    ) -> None:
        self._logical = part.logical
        self._atoms = stored_atoms(part)
        self.part_queries = PartQueries(part.logical, targets_of_predicates(part.logical), ~removed)
        self._part, self._removed = part, removed
        self._finder = KeyFinder(self._atoms, load_patterns(part, self._atoms), words=False)
        self._words = PlanWords.of(part, self._atoms)
        self._table = FilterTable.of(part.logical, self._atoms.atom_shares if shares is None else shares)
        self._settings = settings
        self._kinds, self._indexes, self._extras = _number_atoms(self._atoms)
        self._trees = BoundedCache[bytes, SourceTree](_MAX_CACHED_NODES)

    def tree(self, source: int) -> SourceTree:
        """Return the tree of a source. Sources with the same predicates share a tree."""
        mask = self.part_queries.predicates(source)
        key = np.packbits(mask).tobytes()
        source_tree = self._trees.get(key)
        if source_tree is None:
            source_tree = self._prepare(self._table.tree(np.flatnonzero(mask), self._settings))
            # The newest tree is cached at any size.
            self._trees.put(key, source_tree, min(len(source_tree.tree), _MAX_CACHED_NODES))
        return source_tree

    def _prepare(self, tree: FilterTree) -> SourceTree:
        literals, atoms = self._table.clauses, self._atoms
        arrays = TreeArrays(
            parents=tree.parents,
            clause_offsets=tree.clauses.offsets,
            clauses=tree.clauses.values,
            literal_offsets=literals.offsets,
            literals=literals.values,
            kinds=self._kinds,
            indexes=self._indexes,
            slots=atoms.atom_slots,
            lows=atoms.atom_lows,
            highs=atoms.atom_highs,
        )
        levels = offsets_of(np.bincount(tree.depths))
        owners = np.repeat(np.arange(len(tree)), tree.clauses.lengths)
        owner_indexes, clause_literals = literals.expand(tree.clauses.values)
        extra_nodes = owners[owner_indexes[self._kinds[clause_literals >> 1] == EXTRA]]
        needs_extras = np.zeros(len(levels) - 1, dtype=bool)
        needs_extras[tree.depths[extra_nodes]] = True
        return SourceTree(tree, arrays, levels, needs_extras, np.flatnonzero(tree.predicates.lengths))

    @cached_property
    def _index(self) -> PartIndex:
        """The index that matches chunks in which a key of an item is uncertain. Trees need certain keys."""
        return PartIndex(self._part, self._removed)

    def match(self, columns: ItemColumns, statistics: MatchStatistics) -> CandidateMatches:
        """Return the queries of this part that the items match."""
        keys = self._finder.keys(columns)
        if len(keys.doubtful_rows()):
            return self._index.match(columns, statistics)
        chunk = self._chunk(columns, keys)
        reached = [self._descend(source, columns, chunk, statistics) for source in np.unique(columns.feeds).tolist()]
        rows = np.concatenate([np.empty(0, dtype=np.int64), *(pairs[0] for pairs in reached)])
        predicates = np.concatenate([np.empty(0, dtype=np.int64), *(pairs[1] for pairs in reached)])
        verdicts = self._verdicts(rows, predicates, chunk.truth)
        statistics.atom_evaluations += chunk.truth.evaluations
        is_match, is_unknown = verdicts == TRUE, verdicts == UNKNOWN
        match_rows, queries = self.part_queries.queries(columns, rows[is_match], predicates[is_match])
        return CandidateMatches(
            match_rows, queries, self._failures(columns, rows[is_unknown], predicates[is_unknown], chunk.truth)
        )

    def _descend(
        self, source: int, columns: ItemColumns, chunk: _Chunk, statistics: MatchStatistics
    ) -> tuple[Array, Array]:
        """Return pairs of an item of the source and a predicate whose filters the item passed."""
        prepared = self.tree(source)
        masks = np.zeros((len(prepared.tree), chunk.known.shape[1]), dtype=np.uint64)
        _mark(masks[ROOT], np.flatnonzero(columns.feeds == source))
        counts = np.zeros(2, dtype=np.int64)
        for level in range(1, len(prepared.levels) - 1):
            arguments = (
                int(prepared.levels[level]),
                int(prepared.levels[level + 1]),
                prepared.arrays,
                chunk.arrays,
                masks,
            )
            if prepared.needs_extras[level]:
                needed = np.zeros_like(chunk.known)
                need_extras(*arguments, needed)
                chunk.evaluate(needed, self._extras)
            pass_level(*arguments, counts)
        statistics.candidates += int(counts[0])
        statistics.clause_checks += int(counts[1])
        ends = prepared.tree.predicates
        return gather_pairs(masks, prepared.ends, ends.offsets, ends.values)

    def _chunk(self, columns: ItemColumns, keys: BatchKeys) -> _Chunk:
        self._words.add_keys(columns, keys)
        words = -(-len(columns) // 64)
        shape = (len(self._extras), words)
        ranges = int(np.count_nonzero(self._kinds == RANGED))
        arrays = ChunkArrays(
            *_present(keys, words, len(self._atoms.key_tokens)),
            *_numbers(keys, len(self._atoms.slots)),
            np.zeros(ranges, dtype=bool),
            np.zeros((ranges, words), dtype=np.uint64),
            np.zeros(shape, dtype=np.uint64),
            np.zeros(shape, dtype=np.uint64),
        )
        truth = BatchTruth(self._logical, self._atoms, self.part_queries.atoms, columns, keys)
        return _Chunk(arrays, truth, np.zeros(shape, dtype=np.uint64))

    def _verdicts(self, rows: Array, predicates: Array, truth: BatchTruth) -> Array:
        """Return the truth of the predicates that were reached.

        It is TRUE, except where an atom raised an error or a formula decides; there the predicate is evaluated.
        """
        verdicts = np.full(len(rows), TRUE, dtype=np.uint8)
        formulas = self._logical.predicate_formulas[predicates]
        failed_rows = {row for row, _ in truth.reasons}
        doubtful = np.isin(rows, list(failed_rows)) | (formulas != EXACT)
        for index in np.flatnonzero(doubtful).tolist():
            row, formula = int(rows[index]), int(formulas[index])
            if formula != EXACT:
                order = formula_order(self._logical.formulas, self._logical.formula_kinds, formula)
                verdicts[index] = truth.formula(row, formula, order)
            else:
                clauses = self._logical.predicates.row(int(predicates[index]))
                verdicts[index] = truth.clauses(np.full(len(clauses), row), clauses).min(initial=TRUE)
        return verdicts

    def _failures(
        self, columns: ItemColumns, rows: Array, predicates: Array, truth: BatchTruth
    ) -> tuple[Failure, ...]:
        failures = []
        for row, predicate in sorted(set(zip(rows.tolist(), predicates.tolist(), strict=True))):
            reason = next(reason for (failed_row, _), reason in truth.reasons.items() if failed_row == row)
            _, queries = self.part_queries.queries(columns, np.array([row]), np.array([predicate]))
            failures += [Failure(row, query, reason) for query in queries.tolist()]
        return tuple(failures)


def _number_atoms(atoms: AtomLayout) -> tuple[Array, Array, Array]:
    """Return the kind of mask of every atom, its index among the masks of that kind, and the extra atoms."""
    keyed, ranged = atoms.atom_kinds == TestKind.KEY, atoms.atom_kinds == TestKind.RANGE
    kinds = np.where(keyed, KEYED, np.where(ranged, RANGED, EXTRA)).astype(np.uint8)
    indexes = atoms.atom_keys.astype(np.int64)
    extras = np.flatnonzero(kinds == EXTRA)
    indexes[ranged] = np.arange(np.count_nonzero(ranged))
    indexes[extras] = np.arange(len(extras))
    return kinds, indexes, extras


def _present(keys: BatchKeys, words: int, count: int) -> tuple[Array, Array]:
    """Return the masks of the keys that an item has, and the column of every key. A key that no item has gets 0."""
    rows, numbers = keys.pairs()
    columns = np.zeros(count, dtype=np.int64)
    columns[numbers] = 1
    used = np.flatnonzero(columns)
    columns[used] = np.arange(1, len(used) + 1)
    return mark_keys(rows, columns[numbers], words, len(used) + 1), columns


def _numbers(keys: BatchKeys, slots: int) -> tuple[Array, Array, Array]:
    """Return the offsets of the numbers of every slot, the rows of the numbers, and the numbers."""
    positions, numbers = keys.numbers()
    rows, number_slots = np.divmod(positions, max(1, slots))
    order = np.argsort(number_slots, kind="stable")
    return offsets_of(np.bincount(number_slots, minlength=slots)), rows[order], numbers[order]


def _mark(mask: Array, rows: Array) -> None:
    """Set the bits of rows in a mask."""
    np.bitwise_or.at(mask, rows >> 6, np.left_shift(np.uint64(1), (rows & 63).astype(np.uint64)))


def _rows(mask: Array) -> Array:
    """Return the rows of a mask."""
    return np.flatnonzero(np.unpackbits(mask.astype("<u8").view(np.uint8), bitorder="little"))
