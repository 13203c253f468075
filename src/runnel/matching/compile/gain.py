"""What compiling a plan again would gain, now that more is known of the stream (RoSeS §8, its future work).

In: a loaded plan and how frequent words are. Out: the entries that the walk along the streams is expected to pass for
one item, with the anchors as they were chosen and as they would be chosen now. It decides speed, never answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout, Frequencies, lay_out_atoms
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.store import Plan


@dataclass(frozen=True, slots=True)
class Gain:
    """Expected entries for one item: with the plan as it is, and compiled again."""

    now: float
    then: float

    @property
    def share(self) -> float:
        """The part of the work that would be saved.

        >>> Gain(200.0, 50.0).share
        0.75
        """
        return 1.0 - self.then / self.now if self.now > 0 else 0.0


def gain_of_compiling(plan: Plan, frequencies: Frequencies) -> Gain:
    """What compiling a plan's base again would gain."""
    logical = plan.base.logical
    before, after = stored_atoms(plan.base), lay_out_atoms(logical, frequencies)
    return Gain(_entries(logical, before, after), _entries(logical, after, after))


def _entries(logical: LogicalPlan, chosen_by: AtomLayout, shares_of: AtomLayout) -> float:
    """The expected entries for one item, with anchors chosen by one estimate and items as another one has them."""
    keys = choose_anchors(logical, chosen_by).keys
    shares = _shares_by_key(chosen_by, shares_of)
    unanchored = int(np.count_nonzero(keys.lengths == 0))
    return float(shares[keys.values].sum()) + unanchored


def _shares_by_key(keys: AtomLayout, shares_of: AtomLayout) -> Array:
    """The shares of the keys of one layout as another one of the same plan has them."""
    found = np.empty(len(keys.key_ids), dtype=np.float64)
    found[keys.key_ids] = shares_of.key_shares[shares_of.key_ids]
    return found
