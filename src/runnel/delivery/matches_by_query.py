"""Reads ranges of the match log and returns the matches per query. The log itself is ordered by item.

In: feeds, and the ranges of sequences in which their matches are wanted. Out: the matching sequences. Committed
matches never change, so the ranges read last are cached and serve all subscriptions. Only requested matches are
decoded.
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

BLOCK_ITEMS = 20_000
"""Ranges that begin in the same block of this many items are read together."""

_MAX_MATCHES = 8_000_000
"""A range is loaded for all queries at once only if it has at most this many matches."""
_MAX_CACHED_SEQUENCES = 1_000_000
_FEW_FEEDS = 1_000
"""If more feeds of a range are wanted, the range is read for all queries at once."""
_MAX_CACHED_RANGES = 4
_Array = npt.NDArray[np.int64]
_NO_SEQUENCES: _Array = np.empty(0, dtype=np.int64)


@dataclass
class _Range:
    """The matches in (after, upto]: of the requested feeds in `by_feed`, or of all feeds in `all_feeds`."""

    after: int
    upto: int
    by_feed: dict[int, _Array] = field(default_factory=dict)
    all_feeds: QuerySequences | None = None
    is_too_large: bool = False

    def sequences(self, feed: int) -> _Array:
        return self.all_feeds.of(feed) if self.all_feeds is not None else self.by_feed.get(feed, _NO_SEQUENCES)


class MatchesByQuery:
    """Reads matches per query and caches the ranges that were used last."""

    def __init__(self, match_log: MatchLog) -> None:
        self._match_log = match_log
        self._ranges: list[_Range] = []
        """Cached ranges; the least recently used is first."""
        self._sequences = BoundedCache[tuple[int, int, int], tuple[int, ...]](_MAX_CACHED_SEQUENCES)
        self.reads = 0
        """How often the match log was read."""

    def feeds(self, after: int, upto: int) -> set[int]:
        """Return the feeds with a match in (after, upto]."""
        self.reads += 1
        return set(self._match_log.matched_queries(after, upto).tolist())

    def load(self, wanted: Sequence[tuple[int, int, int]]) -> None:
        """Read the matches of all `(feed, after, upto)` together, for later calls of `sequences`.

        If the match log cannot be read, log a warning. The later calls for these ranges then raise the error.
        """
        wanted = [request for request in wanted if request[2] > request[1]]
        if not wanted:
            return
        try:
            loaded = self._range(min(after for _, after, _ in wanted), max(upto for _, _, upto in wanted))
            self._read_feeds(loaded, {feed for feed, _, _ in wanted})
        except (CorruptDataError, NotFoundError, OSError) as error:
            logger.warning("cannot read a part of the match log: %s", error)

    def sequences(self, feed: int, after: int, upto: int) -> tuple[int, ...]:
        """Return the sequences in (after, upto] that matched a feed."""
        if upto <= after:
            return ()
        sequences = self._sequences.get((feed, after, upto))
        if sequences is None:
            loaded = self._range(after, upto)
            self._read_feeds(loaded, {feed})
            sequences = tuple(_within(loaded.sequences(feed), after, upto).tolist())
            self._sequences.put((feed, after, upto), sequences, min(len(sequences) + 1, _MAX_CACHED_SEQUENCES))
        return sequences

    def _range(self, after: int, upto: int) -> _Range:
        """Return a range that includes (after, upto]: a cached one, or a new one without matches."""
        for index, cached in enumerate(self._ranges):
            if cached.after <= after and upto <= cached.upto:
                self._ranges.append(self._ranges.pop(index))
                return cached
        new = _Range(after, upto)
        self._ranges = [*self._ranges[-(_MAX_CACHED_RANGES - 1) :], new]
        return new

    def _read_feeds(self, target: _Range, feeds: Collection[int]) -> None:
        """Read the matches of feeds into a range. If many feeds of it are wanted, read all feeds at once."""
        missing = {feed for feed in feeds if feed not in target.by_feed} if target.all_feeds is None else set()
        if not missing:
            return
        self.reads += 1
        if len(target.by_feed) + len(missing) > _FEW_FEEDS and not target.is_too_large:
            target.all_feeds = self._match_log.by_query(target.after, target.upto, _MAX_MATCHES)
            if target.all_feeds is not None:
                target.by_feed.clear()
                return
            target.is_too_large = True
        sequences = self._match_log.of_queries(missing, target.after, target.upto)
        target.by_feed |= {feed: sequences.get(feed, _NO_SEQUENCES) for feed in missing}


def _within(sequences: _Array, after: int, upto: int) -> _Array:
    low, high = np.searchsorted(sequences, [after + 1, upto + 1])
    return sequences[low:high]
