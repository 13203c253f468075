"""Near-duplicates: texts that say the same in mostly the same words, such as one report in two papers.

In: a text in the call, and items. Out: how much of their runs of words (shingles) the two share, from 0 to 1, by
Jaccard's measure. It is computed exactly: with one text to compare, an estimate by MinHash would not be faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from runnel.algebra.values.similarity import similarity
from runnel.algebra.values.words import words
from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.recent_values import RecentValues
from runnel.matching.operators.builtin.text.input_texts import TEXT, only_text, text_of
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.operator import Parameter

LONGEST = 50_000
"""Characters of a text that are compared."""

_SETTINGS = ("attributes", "words", "least")
_KEPT_TEXTS = 10_000
_KEPT_ITEMS = 256


class NearDuplicate:
    """How much of a text an item repeats: `nearDuplicate('Muse announce a tour of small halls', ?share)`.

    >>> near = NearDuplicate(OperatorContext({"words": "2"}))
    >>> near.answer([Ask({"title": ("Muse announce a tour",)}, ("Muse announce a long tour",))])
    [((0.4,),)]
    """

    parameters = (Parameter("text", "input", "text"), Parameter("share", "result", "number"))
    cost = timedelta(microseconds=100)
    pure = True
    batch = 64

    def __init__(self, place: OperatorContext) -> None:
        configuration = Configuration("near_duplicate", place, _SETTINGS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._words = configuration.whole("words", 3, least=1, most=20)
        self._least = configuration.number("least", 0.0, least=0.0, most=1.0)
        self._texts = RecentValues(self._shingles, most=_KEPT_TEXTS)
        self._items = RecentValues(self._shingles, most=_KEPT_ITEMS)

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """A row with the share for every ask; none where it is below `least`, or where a text has no words."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Answer:
        given = only_text(ask, "a text to compare with")
        if isinstance(given, Failed):
            return given
        one, other = self._texts.get(given), self._items.get(text_of(ask, self._attributes, LONGEST))
        if not one or not other:
            return ()
        share = float(similarity(one, other))
        return ((share,),) if share >= self._least else ()

    def _shingles(self, text: str) -> frozenset[str]:
        return shingles(text[:LONGEST], self._words)


def shingles(text: str, length: int) -> frozenset[str]:
    """The runs of `length` words of a text; a shorter text is one run.

    >>> sorted(shingles("Rock am Ring", 2)), sorted(shingles("Rock", 2)), shingles("!", 2)
    (['am ring', 'rock am'], ['rock'], frozenset())
    """
    cut = words(text)
    if len(cut) <= length:
        return frozenset([" ".join(cut)] if cut else [])
    return frozenset(" ".join(cut[start : start + length]) for start in range(len(cut) - length + 1))
