"""The operator `near_duplicate`: find texts with mostly the same words, such as a news report in two newspapers.

The result is the Jaccard similarity, from 0 to 1, of the shingles (runs of words) of an item and of the text in the
call. It is computed exactly: for a single pair of texts, a MinHash estimate would not be faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from runnel.algebra.values.similarity import similarity
from runnel.algebra.values.words import words
from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.recent_values import RecentValues
from runnel.matching.operators.builtin.text.input_texts import TEXT, only_text, text_of
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.operator import Parameter

MAX_LENGTH = 50_000
"""Characters of a text that are compared."""

_OPTIONS = ("attributes", "words", "least")
_MAX_CACHED_TEXTS = 10_000
_MAX_CACHED_ITEMS = 256


class NearDuplicate:
    """Compares an item with a text: `nearDuplicate('Muse announce a tour of small halls', ?share)`.

    >>> near = NearDuplicate(OperatorContext({"words": "2"}))
    >>> near.answer([OperatorCall({"title": ("Muse announce a tour",)}, ("Muse announce a long tour",))])
    [((0.4,),)]
    """

    parameters = (Parameter("text", "input", "text"), Parameter("share", "result", "number"))
    cost = timedelta(microseconds=100)
    pure = True
    batch = 64

    def __init__(self, context: OperatorContext) -> None:
        configuration = Configuration("near_duplicate", context, _OPTIONS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._shingle_length = configuration.integer("words", 3, minimum=1, maximum=20)
        self._min_share = configuration.number("least", 0.0, minimum=0.0, maximum=1.0)
        self._text_shingles = RecentValues(self._shingles, max_values=_MAX_CACHED_TEXTS)
        self._item_shingles = RecentValues(self._shingles, max_values=_MAX_CACHED_ITEMS)

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return a row with the share per call, or no row if it is below `least` or a text has no words."""
        return [self._answer(call) for call in calls]

    def _answer(self, call: OperatorCall) -> Answer:
        text = only_text(call, "a text to compare with")
        if isinstance(text, FailedCall):
            return text
        text_shingles = self._text_shingles.get(text)
        item_shingles = self._item_shingles.get(text_of(call, self._attributes, MAX_LENGTH))
        if not text_shingles or not item_shingles:
            return ()
        share = float(similarity(text_shingles, item_shingles))
        return ((share,),) if share >= self._min_share else ()

    def _shingles(self, text: str) -> frozenset[str]:
        return shingles(text[:MAX_LENGTH], self._shingle_length)


def shingles(text: str, length: int) -> frozenset[str]:
    """Return the runs of `length` words of a text. A shorter text is a single run.

    >>> sorted(shingles("Rock am Ring", 2)), sorted(shingles("Rock", 2)), shingles("!", 2)
    (['am ring', 'rock am'], ['rock'], frozenset())
    """
    text_words = words(text)
    if len(text_words) <= length:
        return frozenset([" ".join(text_words)] if text_words else [])
    return frozenset(" ".join(text_words[start : start + length]) for start in range(len(text_words) - length + 1))
