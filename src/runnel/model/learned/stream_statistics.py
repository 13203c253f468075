"""Statistics of a stream: the share of items that contain a word or satisfy an atom.

In: observations of sampled items. Out: frequencies, for the optimizer. They affect speed, never results. Old samples
have exponentially decreasing weight, and only the most frequent words are kept (lossy counting: a dropped word had a
weight of at most `floor`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, NamedTuple

HALF_LIFE_ITEMS = 20_000.0
"""Number of sampled items after which an observation has half its weight."""
HALF_LIFE_DAYS = 30.0

MAX_WORD = 64
MAX_ATOM = 1_000
"""Maximum length of observed words and of observed atoms in stored form."""

_ENOUGH_ITEMS = 500.0
"""Number of items from which on a word that was never observed counts as rare."""
_GUESS_ITEMS = 20.0
"""Weight of a guess, in items."""


class ObservedShare(NamedTuple):
    """The number of items that were checked, and of those that passed. The numbers are weighted, so they are not
    integers.
    """

    asked: float
    held: float


@dataclass(frozen=True)
class StreamSample:
    """Counts of sampled items: in total, by word that they contain, and by atom (in stored form).

    >>> some = StreamSample(2, {"rock": 2, "jazz": 1}).merge(StreamSample(2, {"rock": 1}))
    >>> some.items, dict(some.words), some.decayed(items=HALF_LIFE_ITEMS).words["rock"]
    (4.0, {'rock': 3.0, 'jazz': 1.0}, 1.5)
    """

    items: float = 0.0
    words: Mapping[str, float] = field(default_factory=dict)
    atoms: Mapping[str, ObservedShare] = field(default_factory=dict)
    floor: float = 0.0

    def merge(self, other: StreamSample) -> StreamSample:
        """Combine both observations."""
        return merged((self, other))

    def decayed(self, *, items: float = 0.0, days: float = 0.0) -> StreamSample:
        """Return the observations after `items` further sampled items and `days` days."""
        weight = 0.5 ** (max(0.0, items) / HALF_LIFE_ITEMS + max(0.0, days) / HALF_LIFE_DAYS)
        words = {word: held * weight for word, held in self.words.items()}
        atoms = {atom: ObservedShare(share.asked * weight, share.held * weight) for atom, share in self.atoms.items()}
        return StreamSample(self.items * weight, words, atoms, self.floor * weight)

    def bounded(self, *, words: int, atoms: int) -> StreamSample:
        """Keep the most frequent words and the most frequently checked atoms, and raise the floor accordingly.

        >>> StreamSample(9, {"a": 5, "b": 3, "c": 1}).bounded(words=1, atoms=0)
        StreamSample(items=9, words={'a': 5}, atoms={}, floor=3)
        """
        kept_atoms = dict(nlargest(atoms, self.atoms.items(), key=lambda entry: entry[1].asked))
        if len(self.words) <= words:
            return StreamSample(self.items, self.words, kept_atoms, self.floor)
        ranked = nlargest(words + 1, self.words.items(), key=lambda entry: entry[1])
        return StreamSample(self.items, dict(ranked[:words]), kept_atoms, max(self.floor, ranked[words][1]))

    def frequency(self, word: str, guess: float) -> float:
        """Return the share of items that contain a word, or a guess while there are few observations.

        >>> round(StreamSample(980, {"rock": 490}).frequency("rock", 0.01), 3), StreamSample().frequency("rock", 0.01)
        (0.49, 0.01)
        """
        # The weight of a dropped word is between zero and the floor.
        held = min(self.words.get(word, self.floor / 2), self.items)
        return (held + _GUESS_ITEMS * guess) / (self.items + _GUESS_ITEMS)

    def share(self, atom: str, guess: float) -> float:
        """Return the share of items that satisfy a stored atom, or a guess while there are few observations."""
        known = self.atoms.get(atom, ObservedShare(0.0, 0.0))
        return (min(known.held, known.asked) + _GUESS_ITEMS * guess) / (known.asked + _GUESS_ITEMS)

    def frequencies(self) -> Mapping[str, float]:
        """Return the frequencies of words. If enough items were sampled, they include every word.

        >>> few, many = StreamSample(10, {"rock": 5}).frequencies(), StreamSample(999, {"rock": 500}).frequencies()
        >>> few.get("jazz"), many["jazz"], round(many["rock"], 2)
        (None, 0.0005, 0.5)
        """
        return _Frequencies(self)

    def to_json(self) -> dict[str, Any]:
        """Return a short JSON value without empty parts."""
        atoms = {atom: [_short(share.asked), _short(share.held)] for atom, share in self.atoms.items()}
        members = {
            "items": _short(self.items),
            "words": {word: _short(held) for word, held in self.words.items()},
            "atoms": atoms,
            "floor": _short(self.floor),
        }
        return {name: value for name, value in members.items() if value}

    @staticmethod
    def from_json(value: object) -> StreamSample:
        """Read the output of `to_json`. Ignore invalid values.

        >>> StreamSample.from_json({"items": 2, "words": {"rock": 1}}).words
        {'rock': 1.0}
        >>> StreamSample.from_json({"items": "many"}) == StreamSample.from_json(None) == StreamSample()
        True
        """
        if not isinstance(value, dict):
            return StreamSample()
        try:
            words = {str(word): _weight(held) for word, held in value.get("words", {}).items()}
            atoms = {
                str(atom): ObservedShare(_weight(asked), _weight(held))
                for atom, (asked, held) in value.get("atoms", {}).items()
            }
            return StreamSample(_weight(value.get("items", 0)), words, atoms, _weight(value.get("floor", 0)))
        except (AttributeError, TypeError, ValueError):
            return StreamSample()


class _Frequencies(Mapping[str, float]):
    """The frequencies of words as a mapping."""

    def __init__(self, observed: StreamSample) -> None:
        self._observed = observed

    def __getitem__(self, word: str) -> float:
        items = self._observed.items
        held = self._observed.words.get(word)
        if held is None and items < _ENOUGH_ITEMS:
            raise KeyError(word)
        # Add half an item, because an unobserved word may still occur.
        return min(1.0, ((self._observed.floor / 2 if held is None else held) + 0.5) / (items + 1))

    def __iter__(self) -> Iterator[str]:
        return iter(self._observed.words)

    def __len__(self) -> int:
        return len(self._observed.words)


def merged(several: Iterable[StreamSample]) -> StreamSample:
    """Combine all observations."""
    items, floor = 0.0, 0.0
    words: dict[str, float] = {}
    atoms: dict[str, ObservedShare] = {}
    for sample in several:
        items, floor = items + sample.items, floor + sample.floor
        for word, held in sample.words.items():
            words[word] = words.get(word, 0.0) + held
        for atom, share in sample.atoms.items():
            known = atoms.get(atom, ObservedShare(0.0, 0.0))
            atoms[atom] = ObservedShare(known.asked + share.asked, known.held + share.held)
    return StreamSample(items, words, atoms, floor)


def _short(number: float) -> float:
    """Round to four significant digits, to keep the JSON short."""
    return float(f"{number:.4g}") if number != int(number) else int(number)


def _weight(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
        raise ValueError("not a weight")
    return float(number)


def observations_from_json(value: Mapping[str, object]) -> dict[int, StreamSample]:
    """Decode serialized observations."""
    return {int(feed): StreamSample.from_json(sample) for feed, sample in value.items() if feed.isdecimal()}


def merged_observations(several: Iterable[Mapping[str, object]]) -> dict[int, StreamSample]:
    """Combine the serialized observations of several slices."""
    by_feed: dict[int, list[StreamSample]] = {}
    for value in several:
        for feed, sample in observations_from_json(value).items():
            by_feed.setdefault(feed, []).append(sample)
    return {feed: merged(them) for feed, them in by_feed.items()}
