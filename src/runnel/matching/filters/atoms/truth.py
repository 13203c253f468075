"""The truth of literals and clauses on items, for many pairs at once.

Three values: false, unknown, true. An atom whose evaluation raised is unknown on that item; a clause is as true as
its truest literal, a predicate as its least true clause (so a query that fails where it does not matter still
answers).
"""

from __future__ import annotations

import json
from typing import cast

import numpy as np

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import Atom, ContainsStems, WordAtom
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.semantics.evaluate import holds, satisfied_by_words
from runnel.algebra.values.stems import stems_of
from runnel.algebra.values.words import contains_phrase
from runnel.arrays import Array, Rows
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout
from runnel.matching.filters.atoms.atom_tests import TestKind
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.item_keys import BatchKeys
from runnel.matching.patterns.contract import index_of
from runnel.plan.logical_plan import FormulaKind, LogicalPlan

FALSE, UNKNOWN, TRUE = 0, 1, 2


class Atoms:
    """The atoms of a plan part, decoded when first needed."""

    def __init__(self, logical: LogicalPlan) -> None:
        self._texts = logical.atoms
        self._decoded: dict[int, Atom] = {}

    def __getitem__(self, atom: int) -> Atom:
        found = self._decoded.get(atom)
        if found is None:
            found = self._decoded[atom] = cast(Atom, decode_expression(json.loads(self._texts.text(atom))))
        return found


def evaluate_atom(atom: Atom, columns: ItemColumns, row: int) -> bool:
    """Whether an atom holds for an item; atoms on words use the words that were cut already."""
    if isinstance(atom, WordAtom) and atom.attribute.part is None:
        positions = columns.positions(row, atom.attribute.name)
        texts = [position for position in positions if columns.texts[position] is not None]
        if isinstance(atom, ContainsStems):
            stems = stems_of(atom.language, atom.words)
            return any(contains_phrase(columns.stems(position, atom.language), stems) for position in texts)
        return any(satisfied_by_words(atom, columns.words(position)) for position in texts)
    if isinstance(atom, ItemPattern):
        return index_of(atom.family).holds(atom, columns, row)
    return holds(atom, columns.attributes(row), columns.accepted(row))


class BatchTruth:
    """The truths of one plan part on one batch; atoms are evaluated when asked for, once per item."""

    def __init__(
        self, logical: LogicalPlan, layout: AtomLayout, atoms: Atoms, columns: ItemColumns, keys: BatchKeys
    ) -> None:
        self._logical = logical
        self._layout = layout
        self._atoms = atoms
        self._columns = columns
        self._slots = len(layout.slots)
        self._places, self._numbers = keys.numbers()
        self._present, self._columns_of = _presence(keys, len(columns), len(layout.key_hashes))
        self._known: dict[tuple[int, int], int] = {}
        self.reasons = {(row, NOTHING): reason for row, reason in keys.doubt_reasons().items()}
        self.evaluations = 0

    def clauses(self, rows: Array, clauses: Array) -> Array:
        """The truth of each clause on the item in its row."""
        owners, literals = self._logical.clauses.expand(clauses)
        truths = self.literals(rows[owners], literals)
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        return np.asarray(np.maximum.reduceat(truths, starts)) if len(truths) else truths

    def literals(self, rows: Array, literals: Array) -> Array:
        """The truth of each literal on the item in its row."""
        atoms = literals >> 1
        kinds = self._layout.atom_kinds[atoms]
        truths = np.empty(len(literals), dtype=np.uint8)
        keyed = kinds == TestKind.KEY
        columns = self._columns_of[self._layout.atom_keys[atoms[keyed]]]
        truths[keyed] = self._present[rows[keyed], columns]
        ranged = kinds == TestKind.RANGE
        if ranged.any():
            truths[ranged] = self._ranges(rows[ranged], atoms[ranged])
        other = np.flatnonzero(kinds > TestKind.RANGE)
        for index, row, atom in zip(other.tolist(), rows[other].tolist(), atoms[other].tolist(), strict=True):
            truths[index] = self._atom(row, atom)
        negated = np.flatnonzero(literals & 1)
        truths[negated] = TRUE - truths[negated]
        return truths

    def _ranges(self, rows: Array, atoms: Array) -> Array:
        """Whether any number in the atom's slot lies within its bounds."""
        self.evaluations += len(atoms)
        places = rows * self._slots + self._layout.atom_slots[atoms]
        first = np.searchsorted(self._places, places, side="left")
        lengths = np.searchsorted(self._places, places, side="right") - first
        owners = np.repeat(np.arange(len(atoms)), lengths)
        offsets = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        numbers = self._numbers[np.repeat(first, lengths) + offsets]
        looked_at = atoms[owners]
        inside = (numbers >= self._layout.atom_lows[looked_at]) & (numbers <= self._layout.atom_highs[looked_at])
        truths = np.zeros(len(atoms), dtype=np.uint8)
        truths[owners[inside]] = TRUE
        return truths

    def _atom(self, row: int, atom: int) -> int:
        truth = self._known.get((row, atom))
        if truth is None:
            self.evaluations += 1
            try:
                truth = TRUE if evaluate_atom(self._atoms[atom], self._columns, row) else FALSE
            except Exception as error:  # whatever an item does to one atom must not reach the others
                truth = UNKNOWN
                self.reasons[row, atom] = f"{type(error).__name__}: {error}"[:500]
            self._known[row, atom] = truth
        return truth

    def formula(self, row: int, formula: int, order: list[int]) -> int:
        """The truth of a formula on one item; `order` is what it is made of, children first."""
        kinds, rows = self._logical.formula_kinds, self._logical.formulas
        leaves = [one for one in order if kinds[one] == FormulaKind.LITERAL]
        literals = np.array([rows.row(one)[0] for one in leaves], dtype=np.int64)
        truths = dict(zip(leaves, self.literals(np.full(len(leaves), row), literals).tolist(), strict=True))
        for one in order:
            match kinds[one]:
                case FormulaKind.CONSTANT:
                    truths[one] = TRUE if rows.row(one)[0] else FALSE
                case FormulaKind.NOT:
                    truths[one] = TRUE - truths[int(rows.row(one)[0])]
                case FormulaKind.AND:
                    truths[one] = min(truths[child] for child in rows.row(one).tolist())
                case FormulaKind.OR:
                    truths[one] = max(truths[child] for child in rows.row(one).tolist())
        return int(truths[formula])


def _presence(keys: BatchKeys, height: int, count: int) -> tuple[Array, Array]:
    """A matrix of rows and the keys that any row has, or may have: the truth of each.

    And the column of every key (0, always false, where none has).
    """
    sure, doubted = keys.pairs(), keys.doubts()
    columns_of = np.zeros(count, dtype=np.int32)
    columns_of[sure[1]] = columns_of[doubted[1]] = 1
    hits = np.flatnonzero(columns_of)
    columns_of[hits] = np.arange(1, len(hits) + 1)
    present = np.full((height, len(hits) + 1), FALSE, dtype=np.uint8)
    present[doubted[0], columns_of[doubted[1]]] = UNKNOWN
    present[sure[0], columns_of[sure[1]]] = TRUE
    return present, columns_of


def formula_order(formulas: Rows, kinds: Array, root: int) -> list[int]:
    """What a formula is made of, children first."""
    seen = {root}
    stack = [root]
    while stack:
        one = stack.pop()
        if kinds[one] > FormulaKind.LITERAL:
            fresh = [child for child in formulas.row(one).tolist() if child not in seen]
            seen.update(fresh)
            stack.extend(fresh)
    return sorted(seen)
