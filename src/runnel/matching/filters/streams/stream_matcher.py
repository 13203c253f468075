"""The stream matcher, which is the default: it matches batches with the streams of all parts of a plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from runnel.arrays import Array, offsets_of
from runnel.errors import CorruptDataError
from runnel.logs.matches.match_steps import steps_of
from runnel.matching.contract import Explainer, MatchStatistics
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.index.match_slowly import match_slowly
from runnel.matching.filters.streams.emit import merge_steps
from runnel.matching.filters.streams.stream_part import StreamMatches, StreamPart
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches, SteppedMatches, Steps
from runnel.plan.store import Plan, PlanPart

_CHUNK = 2048
"""Items that are processed together, which limits the memory for their decoded values."""


class StreamMatcher:
    """Matches items with the streams of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.statistics = MatchStatistics()
        self._parts = [StreamPart(part, plan.removed(part)) for part in plan.parts]
        self._queries = sum(part.living for part in self._parts)

    @staticmethod
    def explainer(part: PlanPart, removed: Array) -> Explainer:
        """Build the explainer of a plan part."""
        from runnel.matching.explain.explain_streams import StreamExplainer  # workers do not need it

        return StreamExplainer(part, removed)

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item of the batch matches."""
        results = [
            result
            for start in range(0, len(items), _CHUNK)
            for result in self._match_chunk(items, start, min(_CHUNK, len(items) - start))
        ]
        matches = _concatenate(results)
        self.statistics.items += len(items)
        self.statistics.naive_evaluations += len(items) * self._queries
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
        return matches

    def _match_chunk(self, items: ItemBatch, start: int, size: int) -> Iterator[StreamMatches]:
        chunk = ItemBatch(items.records.slice(start, size))
        try:
            columns = ItemColumns(chunk)
            results = [part.match(columns, self.statistics) for part in self._parts]
        except CorruptDataError:
            raise
        except Exception:  # one item can make a whole chunk fail, so match each item alone
            if size > 1:
                for row in range(start, start + size):
                    yield from self._match_chunk(items, row, 1)
                return
            self.statistics.fallbacks += 1
            columns = ItemColumns(chunk)
            results = [_evaluate(part, columns) for part in self._parts]
        yield _merge_parts(results, start)


def _concatenate(results: list[StreamMatches]) -> Matches:
    """Concatenate the matches of consecutive chunks."""
    if len(results) == 1:
        return SteppedMatches(results[0].steps, results[0].failures)
    failures = tuple(failure for result in results for failure in result.failures)
    return SteppedMatches(
        Steps(
            _concatenate_offsets([result.steps.offsets for result in results]),
            np.concatenate([np.empty(0, dtype=np.uint16), *(result.steps.steps for result in results)]),
            _concatenate_offsets([result.steps.leap_offsets for result in results]),
            np.concatenate([np.empty(0, dtype=np.int64), *(result.steps.leaps for result in results)]),
        ),
        failures,
    )


def _concatenate_offsets(offsets: list[Array]) -> Array:
    return offsets_of(np.concatenate([np.empty(0, dtype=np.int64), *map(np.diff, offsets)]))


def _evaluate(part: StreamPart, columns: ItemColumns) -> StreamMatches:
    """Match a single item with the reference evaluator."""
    matches = match_slowly(part.part_queries, columns)
    queries = np.unique(matches.queries)
    return StreamMatches(steps_of(np.array([0, len(queries)], dtype=np.int64), queries), matches.failures)


def _merge_parts(results: list[StreamMatches], start: int) -> StreamMatches:
    """Merge the matches of all parts for one chunk, which begins at row `start` of the batch."""
    steps = results[0].steps
    for other in results[1:]:
        if len(other.steps.steps):
            steps = Steps(*merge_steps(*_arrays(steps), *_arrays(other.steps)))
    failures = [
        Failure(failure.row + start, failure.query, failure.reason)
        for result in results
        for failure in result.failures
    ]
    failures.sort(key=lambda failure: (failure.row, failure.query))
    return StreamMatches(steps, tuple(failures))


def _arrays(steps: Steps) -> tuple[Array, Array, Array, Array]:
    return steps.offsets, steps.steps, steps.leap_offsets, steps.leaps
