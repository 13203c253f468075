"""Matching chunk by chunk, for matchers whose parts give pairs of a row and a query.

In: batches of items. Out: matches. An item that breaks a part is taken alone, and if it still does, the slow way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from runnel.arrays import Array, offsets_of
from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.index.match_slowly import match_slowly
from runnel.matching.filters.index.part_index import CandidateMatches
from runnel.matching.filters.index.reach import Reach
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches


class Part(Protocol):
    """One part of a plan that matches chunks."""

    @property
    def reach(self) -> Reach:
        """The queries behind the part's predicates."""

    def match(self, columns: ItemColumns, statistics: MatchStatistics) -> CandidateMatches:
        """The queries of the part that the items match."""


class ChunkedMatcher:
    """The parts of a plan behind one contract; `chunk` items are matched together."""

    def __init__(self, parts: Sequence[Part], chunk: int) -> None:
        self.statistics = MatchStatistics()
        self._parts: Sequence[Part] = parts
        self._chunk = chunk
        self._queries = sum(part.reach.living for part in parts)

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        found: list[CandidateMatches] = []
        for start in range(0, len(items), self._chunk):
            found.extend(self._matched(items, start, min(self._chunk, len(items) - start)))
        matches = _gathered(found, len(items))
        self.statistics.items += len(items)
        self.statistics.naive_evaluations += len(items) * self._queries
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
        return matches

    def _matched(self, items: ItemBatch, start: int, size: int) -> Iterator[CandidateMatches]:
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
        yield from (_moved(one, start) for one in found)


def _moved(found: CandidateMatches, start: int) -> CandidateMatches:
    failures = tuple(Failure(one.row + start, one.query, one.reason) for one in found.failures)
    return CandidateMatches(found.rows + start, found.queries, failures)


def _gathered(found: list[CandidateMatches], count: int) -> Matches:
    """All pairs as rows of ascending query ids, each pair once."""
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(one.rows for one in found)])
    queries = np.concatenate([np.empty(0, dtype=np.int64), *(one.queries for one in found)])
    rows, queries = _distinct(rows, queries)
    failures = sorted((one for each in found for one in each.failures), key=lambda one: (one.row, one.query))
    return Matches(offsets_of(np.bincount(rows, minlength=count)), queries, tuple(failures))


def _distinct(rows: Array, queries: Array) -> tuple[Array, Array]:
    """The pairs in order, each once."""
    if not len(rows):
        return rows, queries
    lowest = int(queries.min())
    width = int(queries.max()) - lowest + 1
    if int(rows.max()) + 1 < (1 << 62) // width:
        # One sort of one number each is several times faster than a sort by two columns.
        pairs = np.sort(rows * width + (queries - lowest))
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        rows, offsets = np.divmod(pairs, width)
        return rows, offsets + lowest
    pairs = np.unique(np.stack([rows, queries], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]
