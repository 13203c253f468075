"""What cost sampling reads of a plan part: who is found by a key, what is checked then, and what an atom says.

In: a loaded plan part. Out: arrays for the kernel, and the words for a person. Made when an item is first sampled.
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

_SHOWN_ATOMS = 4
_KEPT = 4


class CostLayout:
    """One part of a plan, laid out for sampling."""

    def __init__(self, part: PlanPart) -> None:
        self.part = part
        self._logical = part.logical
        self._atoms = stored_atoms(part)
        self._anchors = part_anchors(part)
        self._decoded = Atoms(part.logical)
        self._targets = targets_of_predicates(part.logical)
        self.finder = KeyFinder(self._atoms, load_patterns(part, self._atoms))
        self.everyone = len(self._atoms.key_tokens)
        """The key, after the last, of predicates that are asked of every item."""
        self.key_shares = np.append(np.clip(self._atoms.key_shares, 1e-9, 1 - 1e-9), 1 - 1e-9)
        self.present = np.zeros(self.everyone + 1, dtype=np.bool_)
        self.users = np.zeros(len(part.logical.atoms), dtype=np.int32)

    @cached_property
    def arrays(self) -> CostArrays:
        """The arrays for the kernel."""
        atoms, anchors, logical = self._atoms, self._anchors, self._logical
        owners = np.repeat(np.arange(len(anchors.clauses), dtype=IDENTIFIER), anchors.keys.lengths)
        lone = np.flatnonzero(anchors.clauses == NOTHING).astype(IDENTIFIER)
        keys = np.concatenate([anchors.keys.values, np.full(len(lone), self.everyone, dtype=IDENTIFIER)])
        postings = Rows.grouped(keys, np.concatenate([owners, lone]), self.everyone + 1)
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
        """An atom by its id."""
        return self._decoded[atom]

    def has_formula(self, predicate: int) -> bool:
        """Whether a predicate is too large for its clauses to decide it."""
        return bool(self._logical.predicate_formulas[predicate] != EXACT)

    def needed(self, predicate: int) -> list[int]:
        """The atoms that the evaluator is asked for to decide a predicate."""
        logical, clauses = self._logical, self._anchors.checks.row(predicate)
        atoms = logical.clauses.expand(clauses)[1] >> 1
        needed = atoms[self._atoms.atom_kinds[atoms] > PHRASE].tolist()
        if self.has_formula(predicate):
            nodes = formula_order(logical.formulas, logical.formula_kinds, int(logical.predicate_formulas[predicate]))
            leaves = [one for one in nodes if logical.formula_kinds[one] == FormulaKind.LITERAL]
            needed += [int(logical.formulas.row(one)[0]) >> 1 for one in leaves]
        return list(dict.fromkeys(needed))

    def found_by(self, predicate: int) -> str:
        """The clause by which a predicate is found, as a person reads it; empty where every item is asked."""
        clause = int(self._anchors.clauses[predicate])
        if clause == NOTHING:
            return ""
        literals = self._logical.clauses.row(clause)[:_SHOWN_ATOMS].tolist()
        return " or ".join(render(self._decoded[literal >> 1]) for literal in literals)[:MAX_PART]

    def count(self, predicate: int) -> int:
        """How many queries ask for a predicate."""
        targets = self._targets.row(predicate)
        offsets = self._logical.targets.offsets
        return int((offsets[targets + 1] - offsets[targets]).sum())

    def queries(self, predicate: int, alive: Array) -> Array:
        """The ids of the queries that ask for a predicate, of those that are alive (by position)."""
        positions = self._logical.targets.expand(self._targets.row(predicate))[1]
        return np.unique(query_of(self._logical.query_ids[positions[alive[positions]]]))


_layouts = BoundedCache[int, CostLayout](_KEPT)


def layout_of(part: PlanPart) -> CostLayout:
    """The layout of a part. The last few are kept: a new version mostly has the same base."""
    kept = _layouts.get(id(part))
    if kept is None or kept.part is not part:
        kept = CostLayout(part)
        _layouts.put(id(part), kept)
    return kept
