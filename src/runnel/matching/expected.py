"""What the streams of a plan are expected to do for an item, as `gain` has it; for `explain`.

In: a loaded plan part. Out: the clause by which each predicate is found, and the entries that are walked.
"""

from __future__ import annotations

import numpy as np

from runnel.matching.filters.anchors import Anchors, choose_anchors
from runnel.matching.filters.layout import stored_atoms
from runnel.plan.arrays import Array
from runnel.plan.store import PlanPart


def part_anchors(part: PlanPart) -> Anchors:
    """The anchors of a loaded plan part, as its streams have them."""
    return choose_anchors(part.logical, stored_atoms(part))


def expected_entries(part: PlanPart, anchors: Anchors) -> float:
    """The entries of the part's streams that are walked for an item by itself.

    Streams are not divided by source: an item passes the entries of all predicates that its keys lead to. In a block
    of items an entry is walked once for all that lead to it, so that it is less in fact.
    """
    shares: Array = stored_atoms(part).key_shares
    unanchored = int(np.count_nonzero(anchors.keys.lengths == 0))
    return float(shares[anchors.keys.values].sum()) + unanchored
