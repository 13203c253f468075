"""The data of a plan part that cost sampling needs, computed when an item is first sampled.

In: a loaded plan part. Out: arrays for the kernel, and readable text for the conditions that cost most.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from runnel.algebra.nodes.expressions import Atom
from runnel.algebra.nodes.render import render
from runnel.arrays import IDENTIFIER, Array, Rows, read_only
from runnel.bounded_cache import BoundedCache
from runnel.matching.compile.expected_work import part_anchors
from runnel.matching.costs.cost_kernel import PHRASE, CostArrays
from runnel.matching.filters.atoms.atom_layout import NOTHING
from runnel.matching.filters.atoms.item_keys import KeyFinder
from runnel.matching.filters.atoms.truth import Atoms, formula_order
from runnel.matching.filters.index.index_layout import stored_atoms, targets_of_predicates
from runnel.matching.patterns.plan_patterns import load_patterns
from runnel.model.learned.query_costs import MAX_PART
from runnel.plan.gates import query_of
from runnel.plan.logical_plan import EXACT, FormulaKind
from runnel.plan.store import PlanPart

_MAX_SHOWN_ATOMS = 4
_CACHED_LAYOUTS = 4


class CostLayout:
    """The data of one plan part for cost sampling."""

    def __init__(self, part: PlanPart) -> None:
        self.part = part
        self._logical = part.logical
        self._atoms = stored_atoms(part)
        self._anchors = part_anchors(part)
        self._decoded = Atoms(part.logical)
        self._targets = targets_of_predicates(part.logical)
        self.finder = KeyFinder(self._atoms, load_patterns(part, self._atoms))
        self.every_item = len(self._atoms.key_tokens)
        """The artificial key, after the last real one, of predicates that are checked for every item."""
        self.key_shares = np.append(np.clip(self._atoms.key_shares, 1e-9, 1 - 1e-9), 1 - 1e-9)
        self.present = np.zeros(self.every_item + 1, dtype=np.bool_)
        self.users = np.zeros(len(part.logical.atoms), dtype=np.int32)

    @cached_property
    def arrays(self) -> CostArrays:
        """The arrays that the kernel reads."""
        atoms, anchors, logical = self._atoms, self._anchors, self._logical
        owners = np.repeat(np.arange(len(anchors.clauses), dtype=IDENTIFIER), anchors.keys.lengths)
        unanchored = np.flatnonzero(anchors.clauses == NOTHING).astype(IDENTIFIER)
        keys = np.concatenate([anchors.keys.values, np.full(len(unanchored), self.every_item, dtype=IDENTIFIER)])
        postings = Rows.grouped(keys, np.concatenate([owners, unanchored]), self.every_item + 1)
        return CostArrays(
            read_only(postings.offsets),
            read_only(postings.values),
            read_only(anchors.checks.offsets),
            read_only(anchors.checks.values),
            read_only(logical.clauses.offsets),
            read_only(logical.clauses.values),
            read_only(atoms.atom_kinds),
            read_only(atoms.atom_keys),
            read_only(atoms.atom_slots),
            read_only(atoms.atom_lows),
            read_only(atoms.atom_highs),
            read_only(logical.predicate_formulas != EXACT),
        )

    def atom(self, atom: int) -> Atom:
        """Return the decoded atom with this id."""
        return self._decoded[atom]

    def has_formula(self, predicate: int) -> bool:
        """Return whether a formula decides the predicate, because its clauses would be too large."""
        return bool(self._logical.predicate_formulas[predicate] != EXACT)

    def needed(self, predicate: int) -> list[int]:
        """Return the atoms that the evaluator needs to decide a predicate."""
        logical, clauses = self._logical, self._anchors.checks.row(predicate)
        atoms = logical.clauses.expand(clauses)[1] >> 1
        needed = atoms[self._atoms.atom_kinds[atoms] > PHRASE].tolist()
        if self.has_formula(predicate):
            nodes = formula_order(logical.formulas, logical.formula_kinds, int(logical.predicate_formulas[predicate]))
            leaves = [node for node in nodes if logical.formula_kinds[node] == FormulaKind.LITERAL]
            needed += [int(logical.formulas.row(leaf)[0]) >> 1 for leaf in leaves]
        return list(dict.fromkeys(needed))

    def found_by(self, predicate: int) -> str:
        """Return the anchor clause of a predicate as text, or an empty text if it is checked for every item."""
        clause = int(self._anchors.clauses[predicate])
        if clause == NOTHING:
            return ""
        literals = self._logical.clauses.row(clause)[:_MAX_SHOWN_ATOMS].tolist()
        return " or ".join(render(self._decoded[literal >> 1]) for literal in literals)[:MAX_PART]

    def count(self, predicate: int) -> int:
        """Return the number of queries that use a predicate."""
        targets = self._targets.row(predicate)
        offsets = self._logical.targets.offsets
        return int((offsets[targets + 1] - offsets[targets]).sum())

    def queries(self, predicate: int, alive: Array) -> Array:
        """Return the ids of the queries that use a predicate. `alive` is a mask of the queries, by position."""
        positions = self._logical.targets.expand(self._targets.row(predicate))[1]
        return np.unique(query_of(self._logical.query_ids[positions[alive[positions]]]))


_layouts = BoundedCache[int, CostLayout](_CACHED_LAYOUTS)


def layout_of(part: PlanPart) -> CostLayout:
    """Return the layout of a part. The last few are cached, because a new version usually has the same base."""
    layout = _layouts.get(id(part))
    if layout is None or layout.part is not part:
        layout = CostLayout(part)
        _layouts.put(id(part), layout)
    return layout
