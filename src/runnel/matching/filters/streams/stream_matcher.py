"""The matcher over streams: the parts of a plan behind one contract, block by block."""

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

_PIECE = 2048
"""Items that are looked at together, so that what is held of them stays small."""


class StreamMatcher:
    """The matcher of a plan whose parts are laid out as streams."""

    def __init__(self, plan: Plan) -> None:
        self.statistics = MatchStatistics()
        self._parts = [StreamPart(part, plan.removed(part)) for part in plan.parts]
        self._queries = sum(part.living for part in self._parts)

    @staticmethod
    def explainer(part: PlanPart, removed: Array) -> Explainer:
        """What explains how streams match a part."""
        from runnel.matching.explain.explain_streams import StreamExplainer  # workers do not need it

        return StreamExplainer(part, removed)

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        answers = [
            answer
            for start in range(0, len(items), _PIECE)
            for answer in self._matched(items, start, min(_PIECE, len(items) - start))
        ]
        matches = _joined(answers)
        self.statistics.items += len(items)
        self.statistics.naive_evaluations += len(items) * self._queries
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
        return matches

    def _matched(self, items: ItemBatch, start: int, size: int) -> Iterator[StreamMatches]:
        piece = ItemBatch(items.records.slice(start, size))
        try:
            columns = ItemColumns(piece)
            found = [part.match(columns, self.statistics) for part in self._parts]
        except CorruptDataError:
            raise
        except Exception:  # one item can break a piece; alone it breaks nothing but itself
            if size > 1:
                for row in range(start, start + size):
                    yield from self._matched(items, row, 1)
                return
            self.statistics.fallbacks += 1
            columns = ItemColumns(piece)
            found = [_slowly(part, columns) for part in self._parts]
        yield _merged(found, start)


def _joined(answers: list[StreamMatches]) -> Matches:
    """The answers of all pieces end to end."""
    if len(answers) == 1:
        return SteppedMatches(answers[0].steps, answers[0].failures)
    failures = tuple(failure for answer in answers for failure in answer.failures)
    return SteppedMatches(
        Steps(
            _offsets([answer.steps.offsets for answer in answers]),
            np.concatenate([np.empty(0, dtype=np.uint16), *(answer.steps.steps for answer in answers)]),
            _offsets([answer.steps.leap_offsets for answer in answers]),
            np.concatenate([np.empty(0, dtype=np.int64), *(answer.steps.leaps for answer in answers)]),
        ),
        failures,
    )


def _offsets(several: list[Array]) -> Array:
    return offsets_of(np.concatenate([np.empty(0, dtype=np.int64), *map(np.diff, several)]))


def _slowly(part: StreamPart, columns: ItemColumns) -> StreamMatches:
    slow = match_slowly(part.reach, columns)
    queries = np.unique(slow.queries)
    return StreamMatches(steps_of(np.array([0, len(queries)], dtype=np.int64), queries), slow.failures)


def _merged(found: list[StreamMatches], start: int) -> StreamMatches:
    """The answers of all parts as one, with the rows of failures counted in the whole batch."""
    steps = found[0].steps
    for other in found[1:]:
        if len(other.steps.steps):
            steps = Steps(*merge_steps(*_arrays(steps), *_arrays(other.steps)))
    failures = sorted(
        (Failure(one.row + start, one.query, one.reason) for answer in found for one in answer.failures),
        key=lambda failure: (failure.row, failure.query),
    )
    return StreamMatches(steps, tuple(failures))


def _arrays(steps: Steps) -> tuple[Array, Array, Array, Array]:
    return steps.offsets, steps.steps, steps.leap_offsets, steps.leaps
