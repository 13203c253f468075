"""Ranges of the match log by query, as delivery asks, instead of by item, as it is stored.

In: which feeds are wanted of which ranges. Out: sequences. Committed matches never change, so a range that was
read serves all subscriptions, this minute's and the next page's. Only what is asked for is decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from runnel.bounded_cache import BoundedCache
from runnel.errors import CorruptDataError, NotFoundError
from runnel.logs.matches.match_log import MatchLog

if TYPE_CHECKING:
    from runnel.logs.matches.query_sequences import QuerySequences  # compiled loops

logger = logging.getLogger("runnel")

SPAN = 20_000
"""Runs of the log that begin within so many items of one another are read together."""

_MOST_PAIRS = 8_000_000
_MOST_ANSWERS = 1_000_000
"""Sequences that are kept in answers."""
_FEW_FEEDS = 1_000
_KEPT = 4
_Array = npt.NDArray[np.int64]
_NONE: _Array = np.empty(0, dtype=np.int64)


@dataclass
class _Range:
    """The matches in (after, upto]: those of the feeds that were asked for in `some`, or all of them in `whole`."""

    after: int
    upto: int
    some: dict[int, _Array] = field(default_factory=dict)
    whole: QuerySequences | None = None
    is_too_large: bool = False

    def of(self, query: int) -> _Array:
        return self.whole.of(query) if self.whole is not None else self.some.get(query, _NONE)


class MatchesByQuery:
    """The ranges that were read last."""

    def __init__(self, matched: MatchLog) -> None:
        self._matched = matched
        self._kept: list[_Range] = []
        self._answers = BoundedCache[tuple[int, int, int], tuple[int, ...]](_MOST_ANSWERS)
        self.reads = 0
        """How often the match log was read."""

    def feeds(self, after: int, upto: int) -> set[int]:
        """The feeds that any item in a range matched."""
        self.reads += 1
        return set(self._matched.matched_queries(after, upto).tolist())

    def load(self, wanted: Sequence[tuple[int, int, int]]) -> None:
        """Read what (feed, after, upto) need, together; what cannot be read fails later, for those who need it."""
        wanted = [one for one in wanted if one[2] > one[1]]
        if not wanted:
            return
        try:
            asked = self._range(min(one[1] for one in wanted), max(one[2] for one in wanted))
            self._ask(asked, {one[0] for one in wanted})
        except (CorruptDataError, NotFoundError, OSError) as error:
            logger.warning("a part of the match log cannot be read: %s", error)

    def of(self, feed: int, after: int, upto: int) -> tuple[int, ...]:
        """The sequences in (after, upto] that matched a feed."""
        if upto <= after:
            return ()
        answer = self._answers.get((feed, after, upto))
        if answer is None:
            asked = self._range(after, upto)
            self._ask(asked, {feed})
            answer = tuple(_within(asked.of(feed), after, upto).tolist())
            self._answers.put((feed, after, upto), answer, min(len(answer) + 1, _MOST_ANSWERS))
        return answer

    def _range(self, after: int, upto: int) -> _Range:
        """A range that holds another, kept or new."""
        for index, kept in enumerate(self._kept):
            if kept.after <= after and upto <= kept.upto:
                self._kept.append(self._kept.pop(index))
                return kept
        fresh = _Range(after, upto)
        self._kept = [*self._kept[-(_KEPT - 1) :], fresh]
        return fresh

    def _ask(self, asked: _Range, feeds: Collection[int]) -> None:
        """Read the matches of feeds into a range. A range of which many feeds are wanted is read once for all."""
        missing = {one for one in feeds if one not in asked.some} if asked.whole is None else set()
        if not missing:
            return
        self.reads += 1
        if len(asked.some) + len(missing) > _FEW_FEEDS and not asked.is_too_large:
            asked.whole = self._matched.by_query(asked.after, asked.upto, _MOST_PAIRS)
            if asked.whole is not None:
                asked.some.clear()
                return
            asked.is_too_large = True
        found = self._matched.of_queries(missing, asked.after, asked.upto)
        asked.some |= {one: found.get(one, _NONE) for one in missing}


def _within(sequences: _Array, after: int, upto: int) -> _Array:
    low, high = np.searchsorted(sequences, [after + 1, upto + 1])
    return sequences[low:high]
