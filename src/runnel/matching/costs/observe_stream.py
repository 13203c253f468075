"""Stream statistics that a worker collects while it matches, from a few sampled items of each slice.

In: a batch of items, and the atoms of the plan that are not single words or values. Out: counts of words and atoms,
by feed. All words of a sampled item are counted, not only those of current queries, because later queries need the
frequencies of their words. Condition families choose what to count of their values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice

import numpy as np

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.semantics.evaluate import holds, is_text
from runnel.algebra.values.words import words
from runnel.arrays import Array, Texts
from runnel.families import registry
from runnel.matching.filters.atoms.atom_tests import TestKind
from runnel.matching.patterns.contract import index_of
from runnel.model.item import Attributes
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.sampling import scattered
from runnel.model.learned.stream_statistics import MAX_ATOM, MAX_WORD, ObservedShare, StreamSample
from runnel.plan.store import PlanPart

_SAMPLE_INTERVAL = 1_024
"""One of this many items is sampled, and at least one per slice."""
_MAX_ITEMS = 32
_MAX_ATOMS = 4
"""Atoms that are evaluated per sampled item."""
_MAX_WORDS = 2_000
_MAX_CHARACTERS = 20_000
"""Characters that are read per value, so that one hostile item does not cost more than many ordinary items."""


class Observer:
    """Samples slices. `candidates` are the ids of the atoms to evaluate, which excludes single words and values."""

    def __init__(self, atoms: Texts, candidates: Array) -> None:
        self._atoms = atoms
        self._candidates = candidates

    @staticmethod
    def of(part: PlanPart) -> Observer:
        """Build the observer of a plan part. It evaluates all atoms except single words, which are counted anyway."""
        kinds = part.layout.get("atom_kinds", np.empty(0, dtype=np.uint8))
        candidates = np.flatnonzero(kinds != TestKind.KEY)
        return Observer(part.logical.atoms if len(candidates) else Texts.of(()), candidates)

    def observe(self, items: ItemBatch) -> dict[int, StreamSample]:
        """Return the statistics of sampled items of a slice, by feed. The same slice always gives the same result."""
        counts_by_feed: dict[int, _Counts] = {}
        for row in _sample_rows(items.sequences):
            item = ItemBatch(items.records.slice(row, 1))
            attributes, accepted = next(item.attributes()), item.records.column("accepted")[0].as_py()
            counts = counts_by_feed.setdefault(int(items.feeds[row]), _Counts())
            counts.add(attributes)
            for text in self._choose_atoms(int(items.sequences[row])):
                counts.evaluate(text, attributes, accepted)
        return {feed: counts.sample() for feed, counts in counts_by_feed.items()}

    def _choose_atoms(self, sequence: int) -> Iterator[str]:
        """Yield the stored atoms to evaluate on an item. Over many items, every atom is chosen."""
        first = scattered(sequence)
        for number in range(first, first + min(_MAX_ATOMS, len(self._candidates))):
            text = self._atoms.text(int(self._candidates[number % len(self._candidates)]))
            if len(text) <= MAX_ATOM:
                yield text


class _Counts:
    """The counts of one feed."""

    def __init__(self) -> None:
        self._items = 0
        self._words: Counter[str] = Counter()
        self._atoms: dict[str, ObservedShare] = {}

    def add(self, attributes: Attributes) -> None:
        """Count an item and its words, each once."""
        texts = (value[:_MAX_CHARACTERS] for values in attributes.values() for value in values if is_text(value))
        item_words = (word for text in texts for word in words(text) if len(word) <= MAX_WORD)
        self._items += 1
        self._words.update(set(islice(item_words, _MAX_WORDS)))
        for family in registry().families.values():
            if values := attributes.get(family.kind.attribute):
                with suppress(Exception):  # the family may come from a plug-in that is broken
                    self._words.update(index_of(family.name).words(values))

    def evaluate(self, text: str, attributes: Attributes, accepted: datetime) -> None:
        """Evaluate a stored atom on an item and count the result. An atom that raises an error is not counted."""
        try:
            held = holds(decode_expression(json.loads(text)), attributes, accepted)
        except Exception:  # statistics are optional: no atom may stop the worker
            return
        share = self._atoms.get(text, ObservedShare(0.0, 0.0))
        self._atoms[text] = ObservedShare(share.asked + 1, share.held + held)

    def sample(self) -> StreamSample:
        return StreamSample(self._items, self._words, self._atoms)


def _sample_rows(sequences: Array) -> list[int]:
    """Choose rows of a slice: divide it into ranges of equal size, and choose one row in each."""
    if not len(sequences):
        return []
    count = min(_MAX_ITEMS, 1 + len(sequences) // _SAMPLE_INTERVAL)
    size = len(sequences) // count
    starts = range(0, count * size, size)
    return [start + scattered(int(sequences[start])) % size for start in starts]


def observations_to_json(observed: Mapping[int, StreamSample]) -> dict[str, object]:
    """Return observations by feed as the JSON that a worker passes to the commit."""
    return {str(feed): sample.to_json() for feed, sample in observed.items()}
