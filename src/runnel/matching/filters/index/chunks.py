"""Match batches in chunks, for matchers whose parts return pairs of a row and a query.

In: batches of items. Out: matches. If a chunk raises an error, its items are matched one by one. If an item alone
raises an error, the reference evaluator matches it.
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
from runnel.matching.filters.index.part_queries import PartQueries
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches


class Part(Protocol):
    """A matcher of chunks for one plan part."""

    @property
    def part_queries(self) -> PartQueries:
        """The queries of the part's predicates."""

    def match(self, columns: ItemColumns, statistics: MatchStatistics) -> CandidateMatches:
        """Return the queries of the part that the items match."""


class ChunkedMatcher:
    """Matches items with all parts of a plan, in chunks of `chunk` items."""

    def __init__(self, parts: Sequence[Part], chunk: int) -> None:
        self.statistics = MatchStatistics()
        self._parts: Sequence[Part] = parts
        self._chunk = chunk
        self._queries = sum(part.part_queries.living for part in parts)

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item of the batch matches."""
        results: list[CandidateMatches] = []
        for start in range(0, len(items), self._chunk):
            results.extend(self._match_chunk(items, start, min(self._chunk, len(items) - start)))
        matches = _merge(results, len(items))
        self.statistics.items += len(items)
        self.statistics.naive_evaluations += len(items) * self._queries
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
        return matches

    def _match_chunk(self, items: ItemBatch, start: int, size: int) -> Iterator[CandidateMatches]:
        chunk = ItemBatch(items.records.slice(start, size))
        try:
            columns = ItemColumns(chunk)
            results = [part.match(columns, self.statistics) for part in self._parts]
        except Exception:  # one item can make a whole chunk fail, so match each item alone
            if size > 1:
                for row in range(start, start + size):
                    yield from self._match_chunk(items, row, 1)
                return
            self.statistics.fallbacks += 1
            columns = ItemColumns(chunk)
            results = [match_slowly(part.part_queries, columns) for part in self._parts]
        yield from (_shift_rows(result, start) for result in results)


def _shift_rows(result: CandidateMatches, start: int) -> CandidateMatches:
    """Return the matches of a chunk with the row numbers of the batch, in which the chunk begins at `start`."""
    failures = tuple(Failure(failure.row + start, failure.query, failure.reason) for failure in result.failures)
    return CandidateMatches(result.rows + start, result.queries, failures)


def _merge(results: list[CandidateMatches], count: int) -> Matches:
    """Merge the matches of all chunks and parts of a batch with `count` items."""
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(result.rows for result in results)])
    queries = np.concatenate([np.empty(0, dtype=np.int64), *(result.queries for result in results)])
    rows, queries = _sort_distinct(rows, queries)
    failures = [failure for result in results for failure in result.failures]
    failures.sort(key=lambda failure: (failure.row, failure.query))
    return Matches(offsets_of(np.bincount(rows, minlength=count)), queries, tuple(failures))


def _sort_distinct(rows: Array, queries: Array) -> tuple[Array, Array]:
    """Return the distinct pairs in ascending order."""
    if not len(rows):
        return rows, queries
    lowest = int(queries.min())
    width = int(queries.max()) - lowest + 1
    if int(rows.max()) + 1 < (1 << 62) // width:
        # Sorting single numbers is several times faster than sorting by two columns.
        pairs = np.sort(rows * width + (queries - lowest))
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        rows, offsets = np.divmod(pairs, width)
        return rows, offsets + lowest
    pairs = np.unique(np.stack([rows, queries], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]
