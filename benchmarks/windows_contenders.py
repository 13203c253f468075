"""Contenders of the look-up in a window, compiled: the nested loop of RoSeS's Table 1, and plain prefix postings.

In: titles as sets of word numbers. Out: the pairs of an item and a window item whose similarity is at least one half,
and counters. Neither contender keeps anything about the window but its words and lists of rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.windows_workload import Numbers, Titles
from benchmarks.zipf import VOCABULARY

from runnel.arrays import offsets_of
from runnel.kernel import Number, kernel, step


@dataclass(frozen=True)
class LookUps:
    """What some items joined, and the CPU time of each look-up.

    If a contender looks up batches, `batch_nanoseconds` is the time of all items together, `nanoseconds` has the time
    per item of a batch in which an item is repeated, and `alone_nanoseconds` that of a batch with one item. `pairs`
    has (item, row of the window) in ascending order. `candidates` counts the rows that were listed or read, and
    `verified` those whose words were compared.
    """

    nanoseconds: Numbers
    pairs: Numbers
    candidates: int
    verified: int
    batch_nanoseconds: int | None = None
    alone_nanoseconds: Numbers | None = None

    def figures(self) -> dict[str, Any]:
        """Return the figures per item."""
        count = len(self.nanoseconds)
        alone = self.alone_nanoseconds
        return {
            "items": count,
            "median_microseconds": float(np.median(self.nanoseconds)) / 1e3,
            "mean_microseconds": self.mean_microseconds,
            "p99_microseconds": float(np.quantile(self.nanoseconds, 0.99)) / 1e3,
            **({} if alone is None else {"alone_median_microseconds": float(np.median(alone)) / 1e3}),
            "candidates_per_item": self.candidates / count,
            "verified_per_item": self.verified / count,
            "joined_per_item": len(self.pairs) / count,
        }

    @property
    def mean_microseconds(self) -> float:
        """The mean CPU time per item, of all items together if a contender looks up batches."""
        total = int(self.nanoseconds.sum()) if self.batch_nanoseconds is None else self.batch_nanoseconds
        return total / len(self.nanoseconds) / 1e3

    def head(self, items: int) -> Numbers:
        """Return the pairs of the first items."""
        return self.pairs[self.pairs[:, 0] < items]


class NestedLoop:
    """Compares an item with every item of the window."""

    def __init__(self, window: Titles) -> None:
        self._window = window
        self._rows = np.empty(len(window), dtype=np.int64)

    def look_up(self, news: Titles, items: Iterable[int]) -> LookUps:
        """Join some items."""

        def search(words: Any, item: int) -> tuple[Any, int, int]:
            count = _compare_all(words, self._window.offsets, self._window.words, self._rows)
            return self._rows[:count], len(self._window), len(self._window)

        return _timed(search, news, items)


class PrefixPostings:
    """Lists a window item under its rarest words, and verifies all items listed under an item's rarest words."""

    def __init__(self, window: Titles) -> None:
        self._window = window
        self._rows = np.empty(len(window), dtype=np.int64)
        self._seen = np.full(len(window), -1, dtype=np.int64)
        lengths = np.zeros(VOCABULARY, dtype=np.int64)
        _count_prefixes(window.offsets, window.words, lengths)
        self._starts = offsets_of(lengths).astype(np.int64)
        self._postings = np.empty(int(self._starts[-1]), dtype=np.int32)
        _list_prefixes(window.offsets, window.words, self._starts[:-1].copy(), self._postings)

    def look_up(self, news: Titles, items: Iterable[int]) -> LookUps:
        """Join some items."""
        self._seen[:] = -1

        def search(words: Any, item: int) -> tuple[Any, int, int]:
            count, candidates, verified = _probe(
                words,
                self._window.offsets,
                self._window.words,
                self._starts,
                self._postings,
                self._seen,
                item,
                self._rows,
            )
            return self._rows[:count], candidates, verified

        return _timed(search, news, items)


def _timed(search: Any, news: Titles, items: Iterable[int]) -> LookUps:
    nanoseconds: list[int] = []
    pairs: list[Numbers] = []
    candidates = verified = 0
    for item in items:
        words = news.row(item)
        started = time.thread_time_ns()
        rows, listed, compared = search(words, item)
        nanoseconds.append(time.thread_time_ns() - started)
        candidates += listed
        verified += compared
        pairs.append(np.stack([np.full(len(rows), item), np.sort(rows)], axis=1))
    return LookUps(np.array(nanoseconds), np.concatenate(pairs), candidates, verified)


@step
def _is_similar(words: Number, offsets: Number, all_words: Number, row: Number) -> Number:
    """Whether the common words are at least half of all words, both ascending."""
    common, position, other, end = 0, 0, offsets[row], offsets[row + 1]
    total = len(words) + end - other
    while position < len(words) and other < end:
        if words[position] == all_words[other]:
            common += 1
            position += 1
            other += 1
        elif words[position] < all_words[other]:
            position += 1
        else:
            other += 1
    return 2 * common >= total - common


@step
def _prefix(length: Number) -> Number:
    """How many of the rarest words of a title must be listed, so that a similar title has one of them."""
    return length - (length + 1) // 2 + 1


@kernel
def _compare_all(words: Number, offsets: Number, all_words: Number, rows: Number) -> Number:
    count = 0
    for row in range(len(offsets) - 1):
        if _is_similar(words, offsets, all_words, row):
            rows[count] = row
            count += 1
    return count


@kernel
def _count_prefixes(offsets: Number, all_words: Number, lengths: Number) -> None:
    for row in range(len(offsets) - 1):
        for position in range(offsets[row + 1] - _prefix(offsets[row + 1] - offsets[row]), offsets[row + 1]):
            lengths[all_words[position]] += 1


@kernel
def _list_prefixes(offsets: Number, all_words: Number, ends: Number, postings: Number) -> None:
    for row in range(len(offsets) - 1):
        for position in range(offsets[row + 1] - _prefix(offsets[row + 1] - offsets[row]), offsets[row + 1]):
            word = all_words[position]
            postings[ends[word]] = row
            ends[word] += 1


@kernel
def _probe(
    words: Number,
    offsets: Number,
    all_words: Number,
    starts: Number,
    postings: Number,
    seen: Number,
    mark: Number,
    rows: Number,
) -> Number:
    count = candidates = verified = 0
    for word in words[len(words) - _prefix(len(words)) :]:
        candidates += starts[word + 1] - starts[word]
        for row in postings[starts[word] : starts[word + 1]]:
            if seen[row] == mark:
                continue
            seen[row] = mark
            length = offsets[row + 1] - offsets[row]
            if 2 * length < len(words) or 2 * len(words) < length:
                continue
            verified += 1
            if _is_similar(words, offsets, all_words, row):
                rows[count] = row
                count += 1
    return count, candidates, verified
