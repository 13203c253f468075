"""The index matcher: matches chunks of items with the anchor index of each plan part (see `part_index`)."""

from __future__ import annotations

from runnel.arrays import Array
from runnel.matching.contract import Explainer
from runnel.matching.filters.index.chunks import ChunkedMatcher
from runnel.matching.filters.index.part_index import PartIndex
from runnel.plan.store import Plan, PlanPart

_CHUNK = 512
"""Items that are matched together: enough to amortize array operations, and few enough for the CPU caches."""

_MAX_PRESENCE_BYTES = 1 << 26
"""Maximum size of the matrix of items and keys."""


class IndexMatcher(ChunkedMatcher):
    """Matches items with the anchor index."""

    def __init__(self, plan: Plan) -> None:
        parts = [PartIndex(part, plan.removed(part)) for part in plan.parts]
        keys = max(len(part.layout.atoms.key_hashes) for part in parts)
        super().__init__(parts, max(16, min(_CHUNK, _MAX_PRESENCE_BYTES // max(1, keys))))

    @staticmethod
    def explainer(part: PlanPart, removed: Array) -> Explainer:
        """Build the explainer of a plan part."""
        from runnel.matching.explain.explain_streams import IndexExplainer  # workers do not need it

        return IndexExplainer(part, removed)
