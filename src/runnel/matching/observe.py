"""What a worker sees of the stream while it matches: a few items of each slice, in full.

In: a batch of items, and the atoms of the plan that no word stands for. Out: what was observed, by feed. All words
of a sampled item count, not only those of today's queries: tomorrow's want to know how frequent their words are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import cast

from runnel.algebra.encode import decode_expression
from runnel.algebra.evaluate import holds
from runnel.algebra.expressions import Atom
from runnel.algebra.text import words
from runnel.model.batch import ItemBatch
from runnel.model.item import Attributes
from runnel.model.statistics import MAX_ATOM, MAX_WORD, Observed, Share
from runnel.plan.arrays import Array, Texts

_ONE_OF = 512
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
        self._decoded: dict[int, Atom | None] = {}

    def observe(self, items: ItemBatch) -> dict[int, Observed]:
        """What some items of a slice show, by feed. The same slice shows the same."""
        counted: dict[int, _Counts] = {}
        for row in _sampled(items.sequences):
            one = ItemBatch(items.records.slice(row, 1))
            counts = counted.setdefault(int(items.feeds[row]), _Counts())
            counts.add(next(one.attributes()))
            self._ask(counts, one, int(items.sequences[row]))
        return {feed: counts.observed() for feed, counts in counted.items()}

    def _ask(self, counts: _Counts, one: ItemBatch, sequence: int) -> None:
        """Ask some atoms about an item; over many items, all have their turn."""
        attributes, accepted = next(one.attributes()), one.records.column("accepted")[0].as_py()
        count = min(_MOST_ATOMS, len(self._candidates))
        for turn in range(sequence * count, (sequence + 1) * count):
            number = int(self._candidates[turn % len(self._candidates)])
            atom = self._atom(number)
            if atom is not None:
                counts.ask(self._atoms.text(number), atom, attributes, accepted)

    def _atom(self, number: int) -> Atom | None:
        if number not in self._decoded:
            text = self._atoms.text(number)
            known = len(text) <= MAX_ATOM
            self._decoded[number] = cast(Atom, decode_expression(json.loads(text))) if known else None
        return self._decoded[number]


class _Counts:
    """What was counted of one feed."""

    def __init__(self) -> None:
        self._items = 0
        self._words: Counter[str] = Counter()
        self._atoms: dict[str, Share] = {}

    def add(self, attributes: Attributes) -> None:
        """Count an item and its words, each once."""
        texts = (
            value[:_MOST_CHARACTERS] for values in attributes.values() for value in values if isinstance(value, str)
        )
        every = (word for text in texts for word in words(text) if len(word) <= MAX_WORD)
        self._items += 1
        self._words.update(set(islice(every, _MOST_WORDS)))

    def ask(self, text: str, atom: Atom, attributes: Attributes, accepted: datetime) -> None:
        """Count whether an atom holds for an item; one that fails is not counted."""
        try:
            held = holds(atom, attributes, accepted)
        except Exception:  # whatever an atom does to an item, the statistics can do without it
            return
        known = self._atoms.get(text, Share(0.0, 0.0))
        self._atoms[text] = Share(known.asked + 1, known.held + held)

    def observed(self) -> Observed:
        return Observed(self._items, self._words, self._atoms)


def _sampled(sequences: Array) -> list[int]:
    """The rows of a slice that are looked at: evenly spread, from a row that differs from slice to slice."""
    if not len(sequences):
        return []
    count = min(_MOST_ITEMS, 1 + len(sequences) // _ONE_OF)
    first = int(sequences[0]) % (len(sequences) // count)
    return [first + step * (len(sequences) // count) for step in range(count)]


def observations_to_json(observed: Mapping[int, Observed]) -> dict[str, object]:
    """The observations as they travel from a worker to the commit."""
    return {str(feed): one.to_json() for feed, one in observed.items()}


def observations_from_json(told: Mapping[str, object]) -> dict[int, Observed]:
    """Observations that travelled."""
    return {int(feed): Observed.from_json(one) for feed, one in told.items() if feed.isdecimal()}
