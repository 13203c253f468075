"""The index matcher: the anchor index of every part of a plan, chunk by chunk. The work is in `part_index`."""

from __future__ import annotations

from runnel.arrays import Array
from runnel.matching.contract import Explainer
from runnel.matching.filters.index.chunks import ChunkedMatcher
from runnel.matching.filters.index.part_index import PartIndex
from runnel.plan.store import Plan, PlanPart

_CHUNK = 512
"""Items that are matched together: enough to pay for the array operations, few enough to stay in the caches."""

_PRESENCE_BYTES = 1 << 26
"""The most memory for the matrix of items and keys."""


class IndexMatcher(ChunkedMatcher):
    """The matcher of a plan."""

    def __init__(self, plan: Plan) -> None:
        parts = [PartIndex(part, plan.removed(part)) for part in plan.parts]
        keys = max(len(part.layout.atoms.key_hashes) for part in parts)
        super().__init__(parts, max(16, min(_CHUNK, _PRESENCE_BYTES // max(1, keys))))

    @staticmethod
    def explainer(part: PlanPart, removed: Array) -> Explainer:
        """What explains how the index matches a part."""
        from runnel.matching.explain.explain_streams import IndexExplainer  # workers do not need it

        return IndexExplainer(part, removed)
