"""The anchor index of a plan part: postings map each key to the predicates anchored at it (see `anchors`).

Predicates without an anchor are checked for every item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows
from runnel.errors import CorruptDataError
from runnel.matching.filters.atoms.anchors import Anchors, choose_anchors
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.store import PlanPart


@dataclass(frozen=True)
class FilterLayout:
    """The arrays of the anchor index. `predicate_targets` are the targets of every predicate."""

    atoms: AtomLayout
    postings: Rows
    unanchored: Array
    checks: Rows
    predicate_targets: Rows


def stored_atoms(part: PlanPart) -> AtomLayout:
    """Load the atom layout of a plan part and check it against the logical plan.

    Raise CorruptDataError if it is damaged, because a damaged index would cause wrong matches.
    """
    folder = part.manifest.folder
    try:
        atoms = AtomLayout.stored(part.layout)
        atoms.check(len(part.stored.atoms))
    except KeyError as error:
        raise CorruptDataError(f"plan {folder} does not contain the index array {error.args[0]}") from error
    except ValueError as error:
        raise CorruptDataError(f"plan {folder}: index array {error}") from error
    return atoms


def layout(logical: LogicalPlan, atoms: AtomLayout) -> FilterLayout:
    """Build the anchor index of a logical plan."""
    anchors = choose_anchors(logical, atoms)
    return FilterLayout(
        atoms=atoms,
        postings=_postings(anchors, len(atoms.key_tokens)),
        unanchored=np.flatnonzero(anchors.clauses == NOTHING).astype(IDENTIFIER),
        checks=anchors.checks,
        predicate_targets=targets_of_predicates(logical),
    )


def targets_of_predicates(logical: LogicalPlan) -> Rows:
    """Return the targets of every predicate."""
    targets = np.arange(len(logical.targets), dtype=IDENTIFIER)
    return Rows.grouped(logical.target_predicates, targets, len(logical.predicates))


def _postings(anchors: Anchors, keys: int) -> Rows:
    predicates = np.repeat(np.arange(len(anchors.clauses), dtype=IDENTIFIER), anchors.keys.lengths)
    return Rows.grouped(anchors.keys.values, predicates, keys)
