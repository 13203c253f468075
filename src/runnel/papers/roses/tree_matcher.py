"""The tree matcher: each source has a filter tree, and items descend below the filters that they pass (RoSeS §4.3).

In: a loaded plan and batches of items. Out: matches, and in the statistics the number of evaluated filters
(`candidates`), which measures the cost that the optimizer's model predicts. `tree_part` matches one part of a plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from runnel.arrays import Array
from runnel.matching.contract import Explainer
from runnel.matching.filters.index.chunks import ChunkedMatcher
from runnel.papers.roses.factoring.candidates import FactoringSettings
from runnel.papers.roses.factoring.filter_tree import FilterTree
from runnel.papers.roses.tree_part import TreePart
from runnel.plan.store import Plan, PlanPart

_CHUNK = 512
"""The maximum number of items that descend a tree together."""

_MASK_BYTES = 1 << 26
"""The maximum memory of the masks of a tree's nodes."""


class TreeMatcher(ChunkedMatcher):
    """Matches a plan with filter trees.

    `shares` has for every part of the plan the share of all items that satisfies each atom. Without it, the estimates
    stored in the plan are used.
    """

    def __init__(
        self, plan: Plan, *, shares: Sequence[Array] | None = None, settings: FactoringSettings | None = None
    ) -> None:
        part_shares: Sequence[Array | None] = shares if shares is not None else [None] * len(plan.parts)
        self._trees = [
            TreePart(part, plan.removed(part), atom_shares, settings)
            for part, atom_shares in zip(plan.parts, part_shares, strict=True)
        ]
        predicates = max(len(part.part_queries.logical.predicates) for part in self._trees)
        # A tree has at most twice as many nodes as predicates; a word of a mask holds 64 items.
        super().__init__(self._trees, 64 * max(1, min(_CHUNK // 64, _MASK_BYTES // (16 * (predicates + 1)))))

    @staticmethod
    def explainer(part: PlanPart, removed: Array) -> Explainer:
        """Return an explainer of how trees match a part."""
        from runnel.papers.roses.explain_tree import TreeExplainer  # workers do not need it

        return TreeExplainer(part)

    def trees(self, source: int) -> list[FilterTree]:
        """Return the filter trees of a source, one per part of the plan."""
        return [part.tree(source).tree for part in self._trees]
