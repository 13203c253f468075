"""The operator `similarity`: find similar spellings, such as names with typing errors or titles in another order.

The result is a ratio of rapidfuzz, from 0 to 1, between an attribute of the item and the text in the call. Both are
normalized to words like the texts of `contains`. If the attribute has several values, the highest ratio counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from rapidfuzz import fuzz

from runnel.algebra.semantics.evaluate import is_text
from runnel.algebra.values.words import words
from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.recent_values import RecentValues
from runnel.matching.operators.builtin.text.input_texts import TEXT, only_text
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.item import Value
from runnel.model.operator import Parameter

MAX_LENGTH = 5000
"""Characters of a text that are compared. The time grows with the product of both lengths."""

MAX_VALUES = 100
"""Maximum number of values that are compared per call."""

MEASURES: dict[str, Callable[[str, str], float]] = {
    "ratio": fuzz.ratio,
    "partial": fuzz.partial_ratio,
    "token_sort": fuzz.token_sort_ratio,
    "token_set": fuzz.token_set_ratio,
}
"""`ratio` compares the whole texts, `partial` the most similar substring, `token_sort` ignores the order of words,
and `token_set` additionally ignores the words that occur in only one of the texts."""

_OPTIONS = ("attributes", "measure", "least")
_MAX_CACHED_TEXTS = 10_000


class Similarity:
    """Compares the spelling of an attribute and a text: `textSimilarity(title, 'Muse tour Europe', ?score)`.

    >>> similarity = Similarity(OperatorContext({"measure": "token_sort"}))
    >>> inputs = [(("Muse: Europe tour",), "muse tour europe"), ((), "muse")]
    >>> similarity.answer([OperatorCall({}, values) for values in inputs])
    [((1.0,),), ()]
    """

    parameters = (
        Parameter("field", "attribute", "text"),
        Parameter("text", "input", "text"),
        Parameter("score", "result", "number"),
    )
    cost = timedelta(microseconds=50)
    pure = True
    batch = 256

    def __init__(self, context: OperatorContext) -> None:
        configuration = Configuration("similarity", context, _OPTIONS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._measure = MEASURES[configuration.one_of("measure", MEASURES, "token_set")]
        self._min_score = configuration.number("least", 0.0, minimum=0.0, maximum=1.0)
        self._normalized_texts = RecentValues(_normalize, max_values=_MAX_CACHED_TEXTS)

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return a row with the score per call, or no row if it is below `least` or a text has no words."""
        return [self._answer(call) for call in calls]

    def _answer(self, call: OperatorCall) -> Answer:
        constant = only_text(call, "a text to compare with")
        if isinstance(constant, FailedCall):
            return constant
        text = self._normalized_texts.get(constant)
        values = [normalized for value in self._values(call) if (normalized := _normalize(value))]
        if not text or not values:
            return ()
        score = max(self._measure(value, text) for value in values) / 100
        return ((score,),) if score >= self._min_score else ()

    def _values(self, call: OperatorCall) -> list[str]:
        named: list[Sequence[Value]] = [values for values in call.inputs if isinstance(values, tuple)]
        chosen = named or [call.attributes.get(name, ()) for name in self._attributes]
        return [value for values in chosen for value in values if is_text(value)][:MAX_VALUES]


def _normalize(text: str) -> str:
    return " ".join(words(text[:MAX_LENGTH]))
