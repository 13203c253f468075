"""Evaluate literals, clauses and formulas on items, for many pairs at once.

The logic has three values: false, unknown and true. An atom is unknown on an item if its evaluation raised an error.
A clause has the maximum of the values of its literals, and a predicate the minimum of the values of its clauses. A
query can thus be decided although one of its atoms fails.
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
        decoded = self._decoded.get(atom)
        if decoded is None:
            decoded = self._decoded[atom] = cast(Atom, decode_expression(json.loads(self._texts.text(atom))))
        return decoded


def evaluate_atom(atom: Atom, columns: ItemColumns, row: int) -> bool:
    """Return whether an atom holds for an item. Atoms on words use the cached words of its texts."""
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
    """The truth values of one plan part on one batch. An atom is evaluated on first use, once per item.

    `reasons` has the errors of atoms by row and atom.
    """

    def __init__(
        self, logical: LogicalPlan, layout: AtomLayout, atoms: Atoms, columns: ItemColumns, keys: BatchKeys
    ) -> None:
        self._logical = logical
        self._layout = layout
        self._atoms = atoms
        self._columns = columns
        self._slots = len(layout.slots)
        self._number_cells, self._numbers = keys.numbers()
        self._present, self._key_columns = _presence(keys, len(columns), len(layout.key_hashes))
        self._evaluated: dict[tuple[int, int], int] = {}
        self.reasons = {(row, NOTHING): reason for row, reason in keys.doubt_reasons().items()}
        self.evaluations = 0

    def clauses(self, rows: Array, clauses: Array) -> Array:
        """Return the truth of each clause on the item in its row."""
        owners, literals = self._logical.clauses.expand(clauses)
        truths = self.literals(rows[owners], literals)
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        return np.asarray(np.maximum.reduceat(truths, starts)) if len(truths) else truths

    def literals(self, rows: Array, literals: Array) -> Array:
        """Return the truth of each literal on the item in its row."""
        atoms = literals >> 1
        kinds = self._layout.atom_kinds[atoms]
        truths = np.empty(len(literals), dtype=np.uint8)
        is_key = kinds == TestKind.KEY
        columns = self._key_columns[self._layout.atom_keys[atoms[is_key]]]
        truths[is_key] = self._present[rows[is_key], columns]
        is_range = kinds == TestKind.RANGE
        if is_range.any():
            truths[is_range] = self._evaluate_ranges(rows[is_range], atoms[is_range])
        other = np.flatnonzero(kinds > TestKind.RANGE)
        for index, row, atom in zip(other.tolist(), rows[other].tolist(), atoms[other].tolist(), strict=True):
            truths[index] = self._evaluate_atom(row, atom)
        negated = np.flatnonzero(literals & 1)
        truths[negated] = TRUE - truths[negated]
        return truths

    def _evaluate_ranges(self, rows: Array, atoms: Array) -> Array:
        """Return for each pair whether any number in the atom's slot is within its bounds."""
        self.evaluations += len(atoms)
        cells = rows * self._slots + self._layout.atom_slots[atoms]
        first = np.searchsorted(self._number_cells, cells, side="left")
        lengths = np.searchsorted(self._number_cells, cells, side="right") - first
        owners = np.repeat(np.arange(len(atoms)), lengths)
        offsets = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        numbers = self._numbers[np.repeat(first, lengths) + offsets]
        compared = atoms[owners]
        is_inside = (numbers >= self._layout.atom_lows[compared]) & (numbers <= self._layout.atom_highs[compared])
        truths = np.zeros(len(atoms), dtype=np.uint8)
        truths[owners[is_inside]] = TRUE
        return truths

    def _evaluate_atom(self, row: int, atom: int) -> int:
        truth = self._evaluated.get((row, atom))
        if truth is None:
            self.evaluations += 1
            try:
                truth = TRUE if evaluate_atom(self._atoms[atom], self._columns, row) else FALSE
            except Exception as error:  # an error of one atom must not affect the others
                truth = UNKNOWN
                self.reasons[row, atom] = f"{type(error).__name__}: {error}"[:500]
            self._evaluated[row, atom] = truth
        return truth

    def formula(self, row: int, formula: int, order: list[int]) -> int:
        """Return the truth of a formula on one item. `order` is the result of `formula_order`."""
        kinds, rows = self._logical.formula_kinds, self._logical.formulas
        leaves = [node for node in order if kinds[node] == FormulaKind.LITERAL]
        literals = np.array([rows.row(leaf)[0] for leaf in leaves], dtype=np.int64)
        truths = dict(zip(leaves, self.literals(np.full(len(leaves), row), literals).tolist(), strict=True))
        for node in order:
            match kinds[node]:
                case FormulaKind.CONSTANT:
                    truths[node] = TRUE if rows.row(node)[0] else FALSE
                case FormulaKind.NOT:
                    truths[node] = TRUE - truths[int(rows.row(node)[0])]
                case FormulaKind.AND:
                    truths[node] = min(truths[child] for child in rows.row(node).tolist())
                case FormulaKind.OR:
                    truths[node] = max(truths[child] for child in rows.row(node).tolist())
        return int(truths[formula])


def _presence(keys: BatchKeys, rows: int, count: int) -> tuple[Array, Array]:
    """Return a matrix with the truth of "the row has the key", and the column of every key in it.

    Only keys that some row has or may have get a column of their own; the others have column 0, which is all false.
    """
    decided, undecided = keys.pairs(), keys.doubts()
    key_columns = np.zeros(count, dtype=np.int32)
    key_columns[decided[1]] = key_columns[undecided[1]] = 1
    used_keys = np.flatnonzero(key_columns)
    key_columns[used_keys] = np.arange(1, len(used_keys) + 1)
    present = np.full((rows, len(used_keys) + 1), FALSE, dtype=np.uint8)
    present[undecided[0], key_columns[undecided[1]]] = UNKNOWN
    present[decided[0], key_columns[decided[1]]] = TRUE
    return present, key_columns


def formula_order(formulas: Rows, kinds: Array, root: int) -> list[int]:
    """Return the nodes of the formula `root`, children before their parents."""
    nodes = {root}
    stack = [root]
    while stack:
        node = stack.pop()
        if kinds[node] > FormulaKind.LITERAL:
            children = [child for child in formulas.row(node).tolist() if child not in nodes]
            nodes.update(children)
            stack.extend(children)
    return sorted(nodes)
