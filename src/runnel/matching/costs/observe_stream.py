"""What a worker sees of the stream while it matches: a few items of each slice, in full.

In: a batch of items, and the atoms of the plan that no word stands for. Out: what was observed, by feed. All words
of a sampled item count, not only those of current queries: later queries need the frequencies of their words.
Condition families count what they need of their values.
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

_ONE_OF = 1_024
"""Of so many items, one is sampled, and at least one of every slice."""
_MOST_ITEMS = 32
_MOST_ATOMS = 4
"""Atoms that are asked about a sampled item."""
_MOST_WORDS = 2_000
_MOST_CHARACTERS = 20_000
"""What is read of one value: one hostile item must not cost more than many others."""


class Observer:
    """Samples slices. `candidates` are the atoms worth asking for: those that are no single word or value."""

    def __init__(self, atoms: Texts, candidates: Array) -> None:
        self._atoms = atoms
        self._candidates = candidates

    @staticmethod
    def of(part: PlanPart) -> Observer:
        """The observer of a plan part: words are counted anyway, so what is asked for are its other atoms."""
        kinds = part.layout.get("atom_kinds", np.empty(0, dtype=np.uint8))
        candidates = np.flatnonzero(kinds != TestKind.KEY)
        return Observer(part.logical.atoms if len(candidates) else Texts.of(()), candidates)

    def observe(self, items: ItemBatch) -> dict[int, StreamSample]:
        """What some items of a slice show, by feed. The same slice shows the same."""
        counted: dict[int, _Counts] = {}
        for row in _sampled(items.sequences):
            one = ItemBatch(items.records.slice(row, 1))
            attributes, accepted = next(one.attributes()), one.records.column("accepted")[0].as_py()
            counts = counted.setdefault(int(items.feeds[row]), _Counts())
            counts.add(attributes)
            for text in self._turn(int(items.sequences[row])):
                counts.ask(text, attributes, accepted)
        return {feed: counts.observed() for feed, counts in counted.items()}

    def _turn(self, sequence: int) -> Iterator[str]:
        """The atoms that an item is asked about; over many items, all have their turn."""
        first = scattered(sequence)
        for turn in range(first, first + min(_MOST_ATOMS, len(self._candidates))):
            text = self._atoms.text(int(self._candidates[turn % len(self._candidates)]))
            if len(text) <= MAX_ATOM:
                yield text


class _Counts:
    """What was counted of one feed."""

    def __init__(self) -> None:
        self._items = 0
        self._words: Counter[str] = Counter()
        self._atoms: dict[str, ObservedShare] = {}

    def add(self, attributes: Attributes) -> None:
        """Count an item and its words, each once."""
        texts = (value[:_MOST_CHARACTERS] for values in attributes.values() for value in values if is_text(value))
        every = (word for text in texts for word in words(text) if len(word) <= MAX_WORD)
        self._items += 1
        self._words.update(set(islice(every, _MOST_WORDS)))
        for family in registry().families.values():
            if values := attributes.get(family.kind.attribute):
                with suppress(Exception):  # as with atoms: a family's index may be that of a broken package
                    self._words.update(index_of(family.name).words(values))

    def ask(self, text: str, attributes: Attributes, accepted: datetime) -> None:
        """Count whether an atom, as it is stored, holds for an item; one that fails is not counted."""
        try:
            held = holds(decode_expression(json.loads(text)), attributes, accepted)
        except Exception:  # whatever an atom does to an item, the statistics can do without it
            return
        known = self._atoms.get(text, ObservedShare(0.0, 0.0))
        self._atoms[text] = ObservedShare(known.asked + 1, known.held + held)

    def observed(self) -> StreamSample:
        return StreamSample(self._items, self._words, self._atoms)


def _sampled(sequences: Array) -> list[int]:
    """The rows of a slice that are looked at: one anywhere in each of some equal stretches."""
    if not len(sequences):
        return []
    count = min(_MOST_ITEMS, 1 + len(sequences) // _ONE_OF)
    stretch = len(sequences) // count
    starts = range(0, count * stretch, stretch)
    return [start + scattered(int(sequences[start])) % stretch for start in starts]


def observations_to_json(observed: Mapping[int, StreamSample]) -> dict[str, object]:
    """The observations as they travel from a worker to the commit."""
    return {str(feed): one.to_json() for feed, one in observed.items()}
