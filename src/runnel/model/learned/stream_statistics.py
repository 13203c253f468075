"""What is learned of a stream: in which part of its items a word occurs and an atom holds.

In: observations of a few sampled items at a time. Out: frequencies, for the optimiser. They decide speed, never
answers, so they are samples, old ones count less (exponentially weighted), and only the heaviest words are kept
(lossy counting: what was let go weighed at most `floor`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, NamedTuple

HALF_LIFE_ITEMS = 20_000.0
"""Sampled items after which an observation counts half."""
HALF_LIFE_DAYS = 30.0

MAX_WORD = 64
MAX_ATOM = 1_000
"""The longest word, and the longest atom as it is stored, that are observed."""

_ENOUGH_ITEMS = 500.0
"""From so many items on, a word that was never seen is known to be rare."""
_GUESS_ITEMS = 20.0
"""A guess weighs as much as so many items."""


class ObservedShare(NamedTuple):
    """Of the items that were asked about, those for which something held; weighted, so not whole numbers."""

    asked: float
    held: float


@dataclass(frozen=True)
class StreamSample:
    """How many items were sampled, in how many of them each word occurs, and the shares of atoms as they are stored.

    >>> some = StreamSample(2, {"rock": 2, "jazz": 1}).merge(StreamSample(2, {"rock": 1}))
    >>> some.items, dict(some.words), some.decayed(items=HALF_LIFE_ITEMS).words["rock"]
    (4.0, {'rock': 3.0, 'jazz': 1.0}, 1.5)
    """

    items: float = 0.0
    words: Mapping[str, float] = field(default_factory=dict)
    atoms: Mapping[str, ObservedShare] = field(default_factory=dict)
    floor: float = 0.0

    def merge(self, other: StreamSample) -> StreamSample:
        """Both observations together."""
        return merged((self, other))

    def decayed(self, *, items: float = 0.0, days: float = 0.0) -> StreamSample:
        """The same after so many more sampled items and days."""
        left = 0.5 ** (max(0.0, items) / HALF_LIFE_ITEMS + max(0.0, days) / HALF_LIFE_DAYS)
        words = {word: held * left for word, held in self.words.items()}
        atoms = {atom: ObservedShare(share.asked * left, share.held * left) for atom, share in self.atoms.items()}
        return StreamSample(self.items * left, words, atoms, self.floor * left)

    def bounded(self, *, words: int, atoms: int) -> StreamSample:
        """The same with the heaviest words and the atoms that were asked for most; the floor says what is lost.

        >>> StreamSample(9, {"a": 5, "b": 3, "c": 1}).bounded(words=1, atoms=0)
        StreamSample(items=9, words={'a': 5}, atoms={}, floor=3)
        """
        kept_atoms = dict(nlargest(atoms, self.atoms.items(), key=lambda one: one[1].asked))
        if len(self.words) <= words:
            return StreamSample(self.items, self.words, kept_atoms, self.floor)
        ranked = nlargest(words + 1, self.words.items(), key=lambda one: one[1])
        return StreamSample(self.items, dict(ranked[:words]), kept_atoms, max(self.floor, ranked[words][1]))

    def frequency(self, word: str, guess: float) -> float:
        """The part of all items that hold a word; a guess stands in while little is known.

        >>> round(StreamSample(980, {"rock": 490}).frequency("rock", 0.01), 3), StreamSample().frequency("rock", 0.01)
        (0.49, 0.01)
        """
        # A word that was let go weighed something between nothing and the floor.
        held = min(self.words.get(word, self.floor / 2), self.items)
        return (held + _GUESS_ITEMS * guess) / (self.items + _GUESS_ITEMS)

    def share(self, atom: str, guess: float) -> float:
        """The part of all items for which an atom, as it is stored, holds; a guess while little is known."""
        known = self.atoms.get(atom, ObservedShare(0.0, 0.0))
        return (min(known.held, known.asked) + _GUESS_ITEMS * guess) / (known.asked + _GUESS_ITEMS)

    def frequencies(self) -> Mapping[str, float]:
        """The frequencies of words; when enough items were seen, of every word.

        >>> few, many = StreamSample(10, {"rock": 5}).frequencies(), StreamSample(999, {"rock": 500}).frequencies()
        >>> few.get("jazz"), many["jazz"], round(many["rock"], 2)
        (None, 0.0005, 0.5)
        """
        return _Frequencies(self)

    def to_json(self) -> dict[str, Any]:
        """As a JSON value, short; without what is empty."""
        atoms = {atom: [_short(share.asked), _short(share.held)] for atom, share in self.atoms.items()}
        told = {
            "items": _short(self.items),
            "words": {word: _short(held) for word, held in self.words.items()},
            "atoms": atoms,
            "floor": _short(self.floor),
        }
        return {name: value for name, value in told.items() if value}

    @staticmethod
    def from_json(told: object) -> StreamSample:
        """Read what `to_json` gave; nothing is learned from anything else.

        >>> StreamSample.from_json({"items": 2, "words": {"rock": 1}}).words
        {'rock': 1.0}
        >>> StreamSample.from_json({"items": "many"}) == StreamSample.from_json(None) == StreamSample()
        True
        """
        if not isinstance(told, dict):
            return StreamSample()
        try:
            words = {str(word): _weight(held) for word, held in told.get("words", {}).items()}
            atoms = {
                str(atom): ObservedShare(_weight(asked), _weight(held))
                for atom, (asked, held) in told.get("atoms", {}).items()
            }
            return StreamSample(_weight(told.get("items", 0)), words, atoms, _weight(told.get("floor", 0)))
        except (AttributeError, TypeError, ValueError):
            return StreamSample()


class _Frequencies(Mapping[str, float]):
    """The frequencies of words, seen as a mapping."""

    def __init__(self, observed: StreamSample) -> None:
        self._observed = observed

    def __getitem__(self, word: str) -> float:
        items = self._observed.items
        held = self._observed.words.get(word)
        if held is None and items < _ENOUGH_ITEMS:
            raise KeyError(word)
        # Half an item more: a word that was not met yet can still come.
        return min(1.0, ((self._observed.floor / 2 if held is None else held) + 0.5) / (items + 1))

    def __iter__(self) -> Iterator[str]:
        return iter(self._observed.words)

    def __len__(self) -> int:
        return len(self._observed.words)


def merged(several: Iterable[StreamSample]) -> StreamSample:
    """All observations together."""
    items, floor = 0.0, 0.0
    words: dict[str, float] = {}
    atoms: dict[str, ObservedShare] = {}
    for one in several:
        items, floor = items + one.items, floor + one.floor
        for word, held in one.words.items():
            words[word] = words.get(word, 0.0) + held
        for atom, share in one.atoms.items():
            known = atoms.get(atom, ObservedShare(0.0, 0.0))
            atoms[atom] = ObservedShare(known.asked + share.asked, known.held + share.held)
    return StreamSample(items, words, atoms, floor)


def _short(number: float) -> float:
    """Four digits are enough, and short."""
    return float(f"{number:.4g}") if number != int(number) else int(number)


def _weight(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
        raise ValueError("no weight")
    return float(number)


def observations_from_json(told: Mapping[str, object]) -> dict[int, StreamSample]:
    """Observations that travelled."""
    return {int(feed): StreamSample.from_json(one) for feed, one in told.items() if feed.isdecimal()}


def merged_observations(several: Iterable[Mapping[str, object]]) -> dict[int, StreamSample]:
    """The observations of several slices, as they travelled, together."""
    by_feed: dict[int, list[StreamSample]] = {}
    for told in several:
        for feed, one in observations_from_json(told).items():
            by_feed.setdefault(feed, []).append(one)
    return {feed: merged(them) for feed, them in by_feed.items()}
