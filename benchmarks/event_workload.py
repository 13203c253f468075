"""A workload of attributes only, for systems that know no words: equalities, prefixes and ranges of numbers.

A query asks for two to four of six attributes, and is a conjunction; an equality names one to three values. The
events' texts are single words, so that a prefix of the value and a word pattern are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.item_batches import batch_of
from benchmarks.workloads import SOURCE, QuerySet, query_set
from benchmarks.zipf import draw, vocabulary

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Atom, Between, Compare, ContainsPattern
from runnel.arrays import IDENTIFIER, Array, Rows, offsets_of
from runnel.model.item_batch import ItemBatch

TEXTS = {"kind": 200, "region": 24, "account": 5000, "path": 20_000}
"""The attributes that hold one word, and how many values each has; `path` is asked for by prefix."""

NUMBERS = ("price", "score")
_NAMES = (*TEXTS, *NUMBERS)
_EQUAL = 3
"""The number of attributes that queries compare for equality."""


@dataclass(frozen=True)
class Events:
    """Events as columns: `texts` are numbers of words, `numbers` the values themselves."""

    texts: Array
    numbers: Array

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def _columns(self) -> dict[str, pa.Array]:
        words = pa.array(vocabulary())
        return {name: words.take(pa.array(self.texts[:, column])) for column, name in enumerate(TEXTS)}

    def batch(self, start: int = 0, stop: int | None = None) -> ItemBatch:
        """Return the first events (all by default) as a batch."""
        stop = len(self) if stop is None else min(stop, len(self))
        texts = {name: column.slice(start, stop - start) for name, column in self._columns.items()}
        numbers = {name: self.numbers[start:stop, column] for column, name in enumerate(NUMBERS)}
        return batch_of(texts, numbers, source=SOURCE, first=start + 1)

    def batches(self, size: int) -> list[ItemBatch]:
        """The events in batches of a size."""
        return [self.batch(start, start + size) for start in range(0, len(self), size)]

    def records(self) -> Iterator[dict[str, Any]]:
        """The events as JSON values."""
        columns = [column.to_pylist() for column in self._columns.values()]
        for row in zip(*columns, *self.numbers.T.tolist(), strict=True):
            yield dict(zip(_NAMES, row, strict=True))


def make_events(count: int, seed: int = 1) -> Events:
    """Events whose words follow Zipf's law in each attribute."""
    generator = np.random.default_rng([seed, 3])
    texts = np.stack([_values(generator, size, count) for size in TEXTS.values()], axis=1)
    numbers = np.stack([np.round(generator.lognormal(4, 1, count), 2), generator.integers(0, 100, count)], axis=1)
    return Events(texts, numbers.astype(np.float64))


def _values(generator: np.random.Generator, size: int, count: int) -> Array:
    return draw(generator, 1.0 / (np.arange(size) + 2.7), count)


def make_event_queries(count: int, seed: int = 7) -> QuerySet:
    """Queries over events, each a conjunction of conditions on different attributes."""
    generator = np.random.default_rng([seed, 4])
    sizes = generator.integers(2, 5, count)
    ranks = np.argsort(generator.random((count, len(_NAMES))), axis=1)
    attributes = ranks[np.arange(len(_NAMES)) < sizes[:, None]]
    lengths = np.where(attributes < _EQUAL, generator.integers(1, 4, len(attributes)), 1)
    clause_of = np.repeat(np.arange(len(attributes)), lengths)
    texts, numbers = _conditions(generator, attributes[clause_of])
    pairs = np.unique(clause_of * (len(texts) + 1) + numbers)
    owners, literals = np.divmod(pairs, len(texts) + 1)
    clauses = Rows(offsets_of(np.bincount(owners)), (2 * literals).astype(IDENTIFIER))
    return query_set(texts, clauses, offsets_of(sizes), "Events")


def _conditions(generator: np.random.Generator, attributes: Array) -> tuple[tuple[Atom, ...], Array]:
    """A condition on the attribute of each place: the distinct atoms, and their numbers by place."""
    table: dict[Atom, int] = {}
    numbers = np.empty(len(attributes), dtype=np.int64)
    for attribute, name in enumerate(_NAMES):
        here = np.flatnonzero(attributes == attribute)
        drawn = _drawn(generator, name, len(here))
        numbers[here] = [table.setdefault(atom, len(table)) for atom in drawn]
    return tuple(table), numbers


def _drawn(generator: np.random.Generator, name: str, count: int) -> Iterator[Atom]:
    words, looked_at = vocabulary(), Attribute(name)
    if name in NUMBERS:
        step, steps, widths = (10, 40, (20, 50, 100)) if name == "price" else (1, 100, (5, 20))
        lows = (generator.integers(0, steps, count) * step).tolist()
        for low, width in zip(lows, generator.choice(widths, count).tolist(), strict=True):
            yield Between(looked_at, float(low), float(low + width))
    elif name == "path":
        lengths = generator.integers(2, 5, count).tolist()
        for word, length in zip(_values(generator, TEXTS[name], count).tolist(), lengths, strict=True):
            yield ContainsPattern(looked_at, (words[word][:length] + "*",))
    else:
        for word in _values(generator, TEXTS[name], count).tolist():
            yield Compare(looked_at, "=", words[word])
