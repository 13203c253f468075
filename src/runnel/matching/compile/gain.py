"""Estimate how much faster a plan would be if it were compiled again with newer statistics (RoSeS §8, future work).

In: a loaded plan and current word frequencies. Out: the entries that matching is expected to read per item, with the
current anchors and with the anchors that would be chosen now. Anchors affect only speed, never the matches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout, Frequencies, compute_atom_layout
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.store import Plan


@dataclass(frozen=True, slots=True)
class Gain:
    """Expected entries per item: with the plan as it is (`now`), and compiled again (`then`)."""

    now: float
    then: float

    @property
    def share(self) -> float:
        """The share of the entries that would be saved.

        >>> Gain(200.0, 50.0).share
        0.75
        """
        return 1.0 - self.then / self.now if self.now > 0 else 0.0


def gain_of_compiling(plan: Plan, frequencies: Frequencies) -> Gain:
    """Estimate the gain of compiling a plan's base again with these word frequencies."""
    logical = plan.base.logical
    before, after = stored_atoms(plan.base), compute_atom_layout(logical, frequencies)
    return Gain(_entries(logical, before, after), _entries(logical, after, after))


def _entries(logical: LogicalPlan, anchor_atoms: AtomLayout, share_atoms: AtomLayout) -> float:
    """Return the expected entries per item, with anchors from one layout and key frequencies from another."""
    keys = choose_anchors(logical, anchor_atoms).keys
    shares = _shares_by_key(anchor_atoms, share_atoms)
    unanchored = int(np.count_nonzero(keys.lengths == 0))
    return float(shares[keys.values].sum()) + unanchored


def _shares_by_key(key_atoms: AtomLayout, share_atoms: AtomLayout) -> Array:
    """Return the shares from one layout for the keys of another layout of the same plan."""
    shares = np.empty(len(key_atoms.key_ids), dtype=np.float64)
    shares[key_atoms.key_ids] = share_atoms.key_shares[share_atoms.key_ids]
    return shares
