"""The tree matcher: every source has a filter tree, and an item goes down only where it passes (RoSeS §4.3).

In: a loaded plan and batches of items. Out: matches, and in the statistics how many filters were asked
(`candidates`): the cost that the optimiser's model predicts, measured. The work on one part is in `tree_part`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.columns import ItemColumns
from runnel.matching.filters.fallback import match_slowly
from runnel.matching.filters.part_index import Found
from runnel.matching.filters.tree_part import TreePart
from runnel.model.batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.optimizer.factoring.candidates import FactoringSettings
from runnel.optimizer.factoring.tree import FilterTree
from runnel.plan.arrays import Array, offsets_of
from runnel.plan.store import Plan

_CHUNK = 512
"""Items that go down a tree together, at most."""

_MASK_BYTES = 1 << 26
"""The most memory for the masks of a tree's nodes."""


class TreeMatcher:
    """The matcher of a plan by filter trees.

    `shares` is, for every part of the plan, the part of all items that satisfies each atom; without it, what the plan
    guesses.
    """

    def __init__(
        self, plan: Plan, *, shares: Sequence[Array] | None = None, settings: FactoringSettings | None = None
    ) -> None:
        self.statistics = MatchStatistics()
        told: Sequence[Array | None] = shares if shares is not None else [None] * len(plan.parts)
        self._parts = [
            TreePart(part, plan.removed(part), known, settings) for part, known in zip(plan.parts, told, strict=True)
        ]
        predicates = max(len(part.reach.logical.predicates) for part in self._parts)
        # A tree has at most twice as many nodes as predicates; a word of a mask holds 64 items.
        self._chunk = 64 * max(1, min(_CHUNK // 64, _MASK_BYTES // (16 * (predicates + 1))))
        self._queries = sum(part.reach.living for part in self._parts)

    def trees(self, source: int) -> list[FilterTree]:
        """The filter trees of a source, one for each part of the plan."""
        return [part.tree(source).tree for part in self._parts]

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        found: list[Found] = []
        for start in range(0, len(items), self._chunk):
            found.extend(self._matched(items, start, min(self._chunk, len(items) - start)))
        matches = _joined(found, len(items))
        self.statistics.items += len(items)
        self.statistics.naive_evaluations += len(items) * self._queries
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
        return matches

    def _matched(self, items: ItemBatch, start: int, size: int) -> Iterator[Found]:
        chunk = ItemBatch(items.records.slice(start, size))
        try:
            columns = ItemColumns(chunk)
            found = [part.match(columns, self.statistics) for part in self._parts]
        except Exception:  # one item can break a chunk; alone it breaks nothing but itself
            if size > 1:
                for row in range(start, start + size):
                    yield from self._matched(items, row, 1)
                return
            self.statistics.fallbacks += 1
            columns = ItemColumns(chunk)
            found = [match_slowly(part.reach, columns) for part in self._parts]
        for one in found:
            failures = tuple(Failure(each.row + start, each.query, each.reason) for each in one.failures)
            yield Found(one.rows + start, one.queries, failures)


def _joined(found: list[Found], count: int) -> Matches:
    """All pairs as rows of ascending query ids, each pair once."""
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(one.rows for one in found)])
    queries = np.concatenate([np.empty(0, dtype=np.int64), *(one.queries for one in found)])
    order = np.lexsort((queries, rows))
    rows, queries = rows[order], queries[order]
    fresh = (np.diff(rows, prepend=-1) != 0) | (np.diff(queries, prepend=-1) != 0)
    failures = sorted((one for each in found for one in each.failures), key=lambda one: (one.row, one.query))
    return Matches(offsets_of(np.bincount(rows[fresh], minlength=count)), queries[fresh], tuple(failures))
