"""Stretches of the match log, turned round: by query, as delivery asks, instead of by item, as it is stored.

In: which feeds are wanted of which ranges. Out: sequences. What is committed never changes, so a stretch that was
read serves all subscriptions, this minute's and the next page's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from runnel.errors import CorruptDataError, NotFoundError
from runnel.logs.matches.match_log import MatchLog

logger = logging.getLogger("runnel")

SPAN = 20_000
"""Runs of the log that begin within so many items of one another are read together."""

_MOST_PAIRS = 8_000_000
_MOST_ANSWERS = 1_000_000
_KEPT = 4
_Array = npt.NDArray[np.int64]
_NONE: _Array = np.empty(0, dtype=np.int64)


@dataclass
class _Stretch:
    """The matches in (after, upto]. `whole` has all of them; else `some` has those of the queries asked for."""

    after: int
    upto: int
    whole: _ByQuery | None = None
    some: dict[int, _Array] = field(default_factory=dict)

    def of(self, query: int) -> _Array:
        return self.whole.of(query) if self.whole is not None else self.some.get(query, _NONE)


@dataclass(frozen=True)
class _ByQuery:
    """Sequences by query: those of `queries[i]` are `sequences[offsets[i]:offsets[i + 1]]`, ascending."""

    queries: _Array
    offsets: _Array
    sequences: _Array

    def of(self, query: int) -> _Array:
        row = int(np.searchsorted(self.queries, query))
        if row == len(self.queries) or self.queries[row] != query:
            return _NONE
        return self.sequences[self.offsets[row] : self.offsets[row + 1]]


class MatchesByQuery:
    """The stretches that were read last."""

    def __init__(self, matched: MatchLog) -> None:
        self._matched = matched
        self._kept: list[_Stretch] = []
        self._answers: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self._answered = 0
        self.reads = 0
        """How often the match log was read."""

    def feeds(self, after: int, upto: int) -> set[int] | None:
        """The queries that anything in a range matched; None if there is too much to tell."""
        stretch = self._stretch(after, upto)
        if stretch.whole is None:
            return None
        if (stretch.after, stretch.upto) == (after, upto):
            return {int(one) for one in stretch.whole.queries}
        return {int(one) for one in stretch.whole.queries if len(_within(stretch.of(one), after, upto))}

    def load(self, wanted: Sequence[tuple[int, int, int]]) -> None:
        """Read what (feed, after, upto) need, together; what cannot be read fails later, for those who need it."""
        wanted = [one for one in wanted if one[2] > one[1]]
        if not wanted:
            return
        try:
            stretch = self._stretch(min(one[1] for one in wanted), max(one[2] for one in wanted))
            self._ask(stretch, {one[0] for one in wanted})
        except (CorruptDataError, NotFoundError, OSError) as error:
            logger.warning("a part of the match log cannot be read: %s", error)

    def of(self, feed: int, after: int, upto: int) -> tuple[int, ...]:
        """The sequences in (after, upto] that matched a feed."""
        if upto <= after:
            return ()
        answer = self._answers.get((feed, after, upto))
        if answer is None:
            stretch = self._stretch(after, upto)
            self._ask(stretch, {feed})
            answer = tuple(_within(stretch.of(feed), after, upto).tolist())
            self._answered += len(answer) + 1
            if self._answered > _MOST_ANSWERS:
                self._answers.clear()
                self._answered = 0
            self._answers[feed, after, upto] = answer
        return answer

    def _stretch(self, after: int, upto: int) -> _Stretch:
        """A stretch that holds a range, kept or new."""
        for place, stretch in enumerate(self._kept):
            if stretch.after <= after and upto <= stretch.upto:
                self._kept.append(self._kept.pop(place))
                return stretch
        stretch = _Stretch(after, upto, self._read_whole(after, upto))
        self._kept = [*self._kept[-(_KEPT - 1) :], stretch]
        return stretch

    def _read_whole(self, after: int, upto: int) -> _ByQuery | None:
        """All matches of a range by query; None if they are too many to hold."""
        self.reads += 1
        sequences, queries, total = [], [], 0
        for rows in self._matched.read(after, upto):
            total += len(rows.queries)
            if total > _MOST_PAIRS:
                return None
            sequences.append(np.repeat(rows.sequences, np.diff(rows.offsets)))
            queries.append(rows.queries)
        if not queries:
            return _ByQuery(_NONE, np.zeros(1, dtype=np.int64), _NONE)
        of = np.concatenate(queries)
        order = np.argsort(of, kind="stable")
        names, firsts = np.unique(of[order], return_index=True)
        return _ByQuery(names, np.append(firsts, len(of)), np.concatenate(sequences)[order])

    def _ask(self, stretch: _Stretch, feeds: Collection[int]) -> None:
        """Read the matches of feeds into a stretch that is not held whole."""
        missing = {one for one in feeds if one not in stretch.some} if stretch.whole is None else set()
        if missing:
            self.reads += 1
            found = self._matched.of_queries(missing, stretch.after, stretch.upto)
            stretch.some |= {one: found.get(one, _NONE) for one in missing}


def _within(sequences: _Array, after: int, upto: int) -> _Array:
    low, high = np.searchsorted(sequences, [after + 1, upto + 1])
    return sequences[low:high]
