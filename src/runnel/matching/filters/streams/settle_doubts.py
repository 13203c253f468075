"""Decide the predicates that the walk leaves undecided, because only the reference evaluator can decide their atoms.

These atoms are evaluated once for every item that needs them, and become masks like all others. Then the undecided
predicates are checked again. If an evaluation raises an error, the atom is unknown for that item, and so is every
predicate that depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.arrays import Array, read_only
from runnel.errors import CorruptDataError
from runnel.kernel import Number, kernel
from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.truth import FALSE, TRUE, UNKNOWN, Atoms, evaluate_atom, formula_order
from runnel.matching.filters.streams.masks import ALL, ONE, WORDS, ZERO, make_masks, set_bits
from runnel.matching.filters.streams.stream_layout import StreamLayout, literal_codes
from runnel.matching.filters.streams.walk import BlockNumbers, BlockTexts, PartArrays, WalkState, make_extra
from runnel.matching.filters.streams.write_streams import KEY, OTHER, RANGE
from runnel.model.match import Failure
from runnel.plan.logical_plan import EXACT, FormulaKind, LogicalPlan
from runnel.plan.store import PlanPart


@dataclass(frozen=True)
class UnknownPredicates:
    """The predicates that stay unknown for some items: their masks, their bits, and the reasons by row."""

    masks: Array
    touched: Array
    reasons: dict[int, str]

    def failures(self, undecided: list[list[int]], first_row: int) -> list[Failure]:
        """Return a failure for each query that could not be decided; `undecided` are the queries by item."""
        return [
            Failure(row, query, self.reasons[row])
            for row, queries in enumerate(undecided, first_row)
            for query in queries
        ]


class DoubtEvaluator:
    """Decides the undecided predicates of one plan part."""

    def __init__(self, part: PlanPart, atoms: AtomLayout, layout: StreamLayout) -> None:
        self._part = part
        self._layout = layout
        self._codes = literal_codes(atoms, layout.extras)

    @cached_property
    def _logical(self) -> LogicalPlan:
        """The logical plan, which is loaded and checked when the first predicate is undecided."""
        try:
            self._layout.check_seldom(self._part.logical)
        except ValueError as error:
            raise CorruptDataError(f"plan {self._part.manifest.folder}: index array {error}") from error
        return self._part.logical

    @cached_property
    def _atoms(self) -> Atoms:
        return Atoms(self._logical)

    def decide(
        self,
        columns: ItemColumns,
        texts: BlockTexts,
        numbers: BlockNumbers,
        part: PartArrays,
        state: WalkState,
        count: int,
        statistics: MatchStatistics,
    ) -> UnknownPredicates | None:
        """Decide the first `count` doubtful entries, and add the predicates that hold to the hits.

        Return the predicates that stay unknown, or None if there are none.
        """
        predicates, masks = _distinct(state.doubtful[:count], state.doubts[: WORDS * count].reshape(-1, WORDS))
        evaluation = _Evaluation(self._atoms, columns, numbers.first_row)
        logical, checks = self._logical, self._layout.checks
        clauses = logical.clauses
        rows = (
            read_only(checks.offsets),
            read_only(checks.values),
            read_only(clauses.offsets),
            read_only(clauses.values),
            read_only(self._codes),
        )
        needed = np.zeros((len(self._layout.extras), WORDS), dtype=np.uint64)
        _gather(predicates, masks, *rows, needed)
        truths, unknowns = np.zeros_like(needed), np.zeros_like(needed)
        for extra in np.flatnonzero(needed.any(axis=1)).tolist():
            atom = int(self._layout.extras[extra])
            evaluation.fill(atom, needed[extra], truths[extra], unknowns[extra])
        open_masks = np.zeros_like(masks)
        _decide(predicates, masks, open_masks, *rows, part, texts, numbers, state, truths, unknowns)
        for index in np.flatnonzero(logical.predicate_formulas[predicates] != EXACT).tolist():
            formula = int(logical.predicate_formulas[predicates[index]])
            self._decide_formula(formula, masks[index], open_masks[index], evaluation)
        state.hits.reshape(-1, WORDS)[predicates] |= masks
        set_bits(state.touched, predicates)
        statistics.atom_evaluations += evaluation.count
        if not open_masks.any():
            return None
        unknown_masks = make_masks(len(state.hits) // WORDS)
        unknown_masks.reshape(-1, WORDS)[predicates] = open_masks
        touched = np.zeros_like(state.touched)
        set_bits(touched, predicates)
        return UnknownPredicates(unknown_masks, touched, evaluation.reasons)

    def _decide_formula(self, formula: int, mask: Array, open_mask: Array, evaluation: _Evaluation) -> None:
        """Evaluate a formula on the items of both masks, and divide them into true (`mask`) and unknown ones."""
        kinds, rows = self._logical.formula_kinds, self._logical.formulas
        order = formula_order(rows, kinds, formula)
        candidates = mask | open_mask
        mask[:] = open_mask[:] = ZERO
        for item in _items(candidates):
            truths: dict[int, int] = {}
            for node in order:
                children = rows.row(node).tolist()
                match kinds[node]:
                    case FormulaKind.CONSTANT:
                        truths[node] = TRUE if children[0] else FALSE
                    case FormulaKind.LITERAL:
                        truth = evaluation.truth(children[0] >> 1, item)
                        truths[node] = TRUE - truth if children[0] & 1 else truth
                    case FormulaKind.NOT:
                        truths[node] = TRUE - truths[children[0]]
                    case FormulaKind.AND:
                        truths[node] = min(truths[child] for child in children)
                    case _:
                        truths[node] = max(truths[child] for child in children)
            target = {TRUE: mask, UNKNOWN: open_mask}.get(truths[formula])
            if target is not None:
                target[item >> 6] |= ONE << np.uint64(item & 63)


class _Evaluation:
    """Evaluates atoms on the items of a block with the reference evaluator, each pair once."""

    def __init__(self, atoms: Atoms, columns: ItemColumns, first_row: int) -> None:
        self._atoms = atoms
        self._columns = columns
        self._first_row = first_row
        self._truths: dict[tuple[int, int], int] = {}
        self.reasons: dict[int, str] = {}
        self.count = 0

    def truth(self, atom: int, item: int) -> int:
        """Return the truth of an atom on an item of the block."""
        truth = self._truths.get((atom, item))
        if truth is None:
            self.count += 1
            row = self._first_row + item
            try:
                truth = TRUE if evaluate_atom(self._atoms[atom], self._columns, row) else FALSE
            except Exception as error:  # an error of one atom must not affect the others
                truth = UNKNOWN
                self.reasons.setdefault(row, f"{type(error).__name__}: {error}"[:500])
            self._truths[atom, item] = truth
        return truth

    def fill(self, atom: int, needed: Array, truths: Array, unknowns: Array) -> None:
        """Evaluate an atom on the items of the mask `needed`, and set the bits of true and unknown items."""
        for item in _items(needed):
            target = {TRUE: truths, UNKNOWN: unknowns}.get(self.truth(atom, item))
            if target is not None:
                target[item >> 6] |= ONE << np.uint64(item & 63)


def _items(mask: Array) -> list[int]:
    """Return the items of a mask."""
    bits = np.unpackbits(mask.astype("<u8").view(np.uint8), bitorder="little")
    return list(np.flatnonzero(bits).tolist())


def _distinct(predicates: Array, masks: Array) -> tuple[Array, Array]:
    """Return the distinct predicates with their united masks. Several keys may lead to the same predicate."""
    order = np.argsort(predicates, kind="stable")
    starts = np.flatnonzero(np.diff(predicates[order], prepend=-1))
    return predicates[order][starts], np.bitwise_or.reduceat(masks[order], starts, axis=0)


@kernel
def _gather(
    predicates: Array,
    masks: Array,
    check_offsets: Array,
    checks: Array,
    clause_offsets: Array,
    literals: Array,
    codes: Array,
    needed: Array,
) -> None:
    """Add to `needed` the items for which each atom must be evaluated."""
    for index in range(len(predicates)):
        for clause in checks[check_offsets[predicates[index]] : check_offsets[predicates[index] + 1]]:
            for literal in literals[clause_offsets[clause] : clause_offsets[clause + 1]]:
                code = codes[literal]
                if (code >> np.uint32(1)) & np.uint32(3) == OTHER:
                    for word in range(WORDS):
                        needed[code >> np.uint32(3), word] |= masks[index, word]


@kernel
def _decide(
    predicates: Array,
    masks: Array,
    open_masks: Array,
    check_offsets: Array,
    checks: Array,
    clause_offsets: Array,
    literals: Array,
    codes: Array,
    part: PartArrays,
    texts: BlockTexts,
    numbers: BlockNumbers,
    state: WalkState,
    truths: Array,
    unknowns: Array,
) -> None:
    """Keep in `masks` the items for which a predicate holds; set in `open_masks` those for which it is unknown."""
    true = np.empty(WORDS, dtype=np.uint64)
    maybe = np.empty(WORDS, dtype=np.uint64)
    for index in range(len(predicates)):
        for word in range(WORDS):
            open_masks[index, word] = masks[index, word]
        for clause in checks[check_offsets[predicates[index]] : check_offsets[predicates[index] + 1]]:
            true[:] = ZERO
            maybe[:] = ZERO
            for literal in literals[clause_offsets[clause] : clause_offsets[clause + 1]]:
                code = codes[literal]
                extra: Number = np.int64(code >> np.uint32(3))
                flip = ALL if code & np.uint32(1) else ZERO
                kind = (code >> np.uint32(1)) & np.uint32(3)
                if kind != KEY and kind != OTHER and state.stamps[extra] != state.counters[3]:
                    make_extra(part, texts, numbers, state, np.uint64(extra), kind == RANGE)
                for word in range(WORDS):
                    if kind == KEY:
                        value, unknown = state.present[WORDS * extra + word] ^ flip, ZERO
                    elif kind == OTHER:
                        unknown = unknowns[extra, word]
                        value = (truths[extra, word] ^ flip) & ~unknown
                    else:
                        value, unknown = state.extra_masks[WORDS * extra + word] ^ flip, ZERO
                    true[word] |= value
                    maybe[word] |= value | unknown
            for word in range(WORDS):
                masks[index, word] &= true[word]
                open_masks[index, word] &= maybe[word]
        for word in range(WORDS):
            open_masks[index, word] &= ~masks[index, word]
