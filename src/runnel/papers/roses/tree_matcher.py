"""The tree matcher: every source has a filter tree, and an item goes down only where it passes (RoSeS §4.3).

In: a loaded plan and batches of items. Out: matches, and in the statistics how many filters were asked
(`candidates`): the cost that the optimiser's model predicts, measured. The work on one part is in `tree_part`.
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
"""Items that go down a tree together, at most."""

_MASK_BYTES = 1 << 26
"""The most memory for the masks of a tree's nodes."""


class TreeMatcher(ChunkedMatcher):
    """The matcher of a plan by filter trees.

    `shares` is, for every part of the plan, the part of all items that satisfies each atom; without it, what the plan
    guesses.
    """

    def __init__(
        self, plan: Plan, *, shares: Sequence[Array] | None = None, settings: FactoringSettings | None = None
    ) -> None:
        told: Sequence[Array | None] = shares if shares is not None else [None] * len(plan.parts)
        self._trees = [
            TreePart(part, plan.removed(part), known, settings) for part, known in zip(plan.parts, told, strict=True)
        ]
        predicates = max(len(part.part_queries.logical.predicates) for part in self._trees)
        # A tree has at most twice as many nodes as predicates; a word of a mask holds 64 items.
        super().__init__(self._trees, 64 * max(1, min(_CHUNK // 64, _MASK_BYTES // (16 * (predicates + 1)))))

    @staticmethod
    def explainer(part: PlanPart, removed: Array) -> Explainer:
        """What explains how trees match a part."""
        from runnel.papers.roses.explain_tree import TreeExplainer  # workers do not need it

        return TreeExplainer(part)

    def trees(self, source: int) -> list[FilterTree]:
        """The filter trees of a source, one for each part of the plan."""
        return [part.tree(source).tree for part in self._trees]
