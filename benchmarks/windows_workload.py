"""The workload of `benchmarks.windows`: photos in windows, news that join them, and queries over many windows.

Titles have 6 to 12 words, drawn by Zipf's law from a vocabulary of 50,000. Half of the news repeat the title of a
photo with at most two words replaced. All photos come before all news, so the sequence of a photo is its row plus 1.
Everything is drawn from one seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from benchmarks.item_batches import batch_of
from benchmarks.zipf import VOCABULARY, draw, vocabulary

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Expression
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, with_hidden_feeds
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.joins import Join
from runnel.arrays import Array, offsets_of
from runnel.model.item_batch import ItemBatch

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.int32]

PHOTOS, NEWS = 1, 2
"""The source feeds."""

FIRST_QUERY = 10
VALUES = 10_000
"""Distinct codes, and distinct links."""

QUERIES_PER_TOPIC = 800
"""The number of queries whose condition on the news an item satisfies, at 100,000 queries and above."""

_WINDOWS_PER_PHOTO = 0.05
_MAX_PRICE = 1_000.0
_SHORTEST, _LONGEST = 6, 12

SIMILAR = cast(Expression, WindowAtom("similar", Attribute("title"), Attribute("title"), Fraction(1, 2)))
SAME_CODE = cast(Expression, WindowAtom("=", Attribute("code"), Attribute("code")))
SAME_LINK = cast(Expression, WindowAtom("shares", Attribute("link"), Attribute("link")))


@dataclass(frozen=True)
class Titles:
    """Titles as sets of words: `words` has the numbers of each title's distinct words, ascending.

    The most frequent word has the number 0.
    """

    offsets: Numbers
    words: Words

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, row: int) -> Words:
        """Return the words of a title."""
        return self.words[self.offsets[row] : self.offsets[row + 1]]

    def texts(self, first: int, last: int) -> list[str]:
        """Return a range of the titles as texts."""
        known = vocabulary()
        return [" ".join(known[word] for word in self.row(row).tolist()) for row in range(first, last)]


@dataclass(frozen=True)
class Workload:
    """Photos with prices, news with topics, and codes of both, from which links are made."""

    photos: Titles
    prices: Array
    photo_codes: Numbers
    news: Titles
    topics: Numbers
    news_codes: Numbers

    def photo_batches(self, size: int = 20_000) -> list[ItemBatch]:
        """Return all photos, in batches."""
        return [
            self._photos(first, min(first + size, len(self.photos))) for first in range(0, len(self.photos), size)
        ]

    def _photos(self, first: int, last: int) -> ItemBatch:
        texts = _texts(self.photos.texts(first, last), self.photo_codes[first:last])
        return batch_of(texts, {"price": self.prices[first:last]}, source=PHOTOS, first=first + 1)

    def news_batch(self, first: int, last: int) -> ItemBatch:
        """Return a range of the news."""
        texts = _texts(self.news.texts(first, last), self.news_codes[first:last])
        numbers = {"topic": self.topics[first:last].astype(np.float64)}
        return batch_of(texts, numbers, source=NEWS, first=len(self.photos) + first + 1)


def _texts(titles: list[str], codes: Numbers) -> dict[str, pa.Array]:
    return {
        "title": pa.array(titles, pa.string()),
        "code": pa.array([f"code {code}" for code in codes.tolist()], pa.string()),
        "link": pa.array([f"https://example.org/{code}" for code in codes.tolist()], pa.string()),
    }


def make_workload(photos: int, news: int, topics: int, seed: int) -> Workload:
    """Draw a workload."""
    generator = np.random.default_rng(seed)
    window = _draw_titles(generator, photos)
    return Workload(
        window,
        generator.random(photos) * _MAX_PRICE,
        generator.integers(0, VALUES, photos),
        _repeat_titles(generator, window, _draw_titles(generator, news)),
        generator.integers(0, topics, news),
        generator.integers(0, VALUES, news),
    )


def _draw_titles(generator: np.random.Generator, count: int) -> Titles:
    lengths = generator.integers(_SHORTEST, _LONGEST + 1, count)
    owners = np.repeat(np.arange(count), lengths)
    return _titles(owners, draw(generator, 1.0 / np.arange(1, VOCABULARY + 1), len(owners)), count)


def _repeat_titles(generator: np.random.Generator, window: Titles, fresh: Titles) -> Titles:
    """Replace half of the titles by titles of the window, with up to two words of the replaced title."""
    owners: list[Numbers] = []
    chosen: list[Words] = []
    for row in range(len(fresh)):
        words = fresh.row(row)
        if generator.random() < 0.5:
            replaced = int(generator.integers(0, 3))
            kept = generator.permutation(window.row(int(generator.integers(0, len(window)))))[replaced:]
            words = np.concatenate([kept, generator.permutation(words)[:replaced]])
        chosen.append(words)
        owners.append(np.full(len(words), row))
    return _titles(np.concatenate(owners), np.concatenate(chosen), len(fresh))


def _titles(owners: Numbers, words: npt.NDArray[np.integer], count: int) -> Titles:
    """Return the distinct words of each title."""
    unique = np.unique(owners * VOCABULARY + words)
    lengths = np.bincount(unique // VOCABULARY, minlength=count)
    return Titles(offsets_of(lengths).astype(np.int64), (unique % VOCABULARY).astype(np.int32))


@dataclass(frozen=True)
class JoinQueries:
    """Queries that join the news of a topic with the last `extents` photos between two prices.

    `windows` has the number of each query's window, whose prices start at `lows` and end before `highs`.
    """

    topics: Numbers
    windows: Numbers
    extents: Numbers
    lows: Array
    highs: Array

    def __len__(self) -> int:
        return len(self.topics)

    @property
    def ids(self) -> Numbers:
        """The feeds of the queries."""
        return np.arange(FIRST_QUERY, FIRST_QUERY + len(self))

    def definitions(self) -> dict[int, Node]:
        """Return the definitions of the queries, and of their windows as hidden feeds."""
        price, topic = Attribute("price"), Attribute("topic")
        windows = [
            Filter(Read(PHOTOS), And((Compare(price, ">=", low), Compare(price, "<", high))))
            for low, high in zip(self.lows.tolist(), self.highs.tolist(), strict=True)
        ]
        rows = zip(self.ids.tolist(), self.topics.tolist(), self.windows.tolist(), self.extents.tolist(), strict=True)
        written: dict[int, Node] = {
            query: Gated(
                Filter(Read(NEWS), Compare(topic, "=", float(of_topic))),
                Join(extent, SIMILAR, "photos"),
                windows[window],
            )
            for query, of_topic, window, extent in rows
        }
        return with_hidden_feeds(written, FIRST_QUERY + len(self))


def topics_of(queries: int) -> int:
    """Return how many topics the news have, so that each news item is of interest to 800 queries.

    >>> topics_of(100_000), topics_of(10)
    (125, 1)
    """
    return max(1, queries // QUERIES_PER_TOPIC)


def make_join_queries(count: int, windows: int, photos: int, seed: int) -> JoinQueries:
    """Draw queries. A photo is in 5 % of the windows, and in at least one."""
    generator = np.random.default_rng(seed + 1)
    width = _MAX_PRICE * _WINDOWS_PER_PHOTO
    lows = np.linspace(0.0, _MAX_PRICE - width, windows)
    return JoinQueries(
        generator.integers(0, topics_of(count), count),
        generator.integers(0, windows, count),
        generator.integers(1, photos + 1, count),
        lows,
        lows + width,
    )


def one_join(condition: Expression, photos: int) -> dict[int, Node]:
    """Return one query that joins all news with all photos, and its window."""
    written: dict[int, Node] = {FIRST_QUERY: Gated(Read(NEWS), Join(photos, condition, "photos"), Read(PHOTOS))}
    return with_hidden_feeds(written, FIRST_QUERY + 1)
