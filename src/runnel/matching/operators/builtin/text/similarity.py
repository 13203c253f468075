"""Similarity of texts, letter by letter: names with slips, titles with words in another order.

In: a text in the call, and an attribute of items. Out: how alike they are, from 0 to 1, by rapidfuzz's ratios over
the words of both, folded as `contains` folds them. Of several values the most alike counts.
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
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.item import Value
from runnel.model.operator import Parameter

LONGEST = 5000
"""Characters of a text that are compared: the time grows with the product of both lengths."""

MAX_VALUES = 100
"""Values of an attribute that are compared."""

MEASURES: dict[str, Callable[[str, str], float]] = {
    "ratio": fuzz.ratio,
    "partial": fuzz.partial_ratio,
    "token_sort": fuzz.token_sort_ratio,
    "token_set": fuzz.token_set_ratio,
}
"""`ratio` compares from beginning to end, `partial` the best part, `token_sort` without the order of words, and
`token_set` also without the words that only one of them has."""

_SETTINGS = ("attributes", "measure", "least")
_KEPT = 10_000


class Similarity:
    """How alike an attribute and a text are: `textSimilarity(title, 'Muse tour Europe', ?score)`.

    >>> similarity = Similarity(OperatorContext({"measure": "token_sort"}))
    >>> similarity.answer([Ask({}, (("Muse: Europe tour",), "muse tour europe")), Ask({}, ((), "muse"))])
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

    def __init__(self, place: OperatorContext) -> None:
        configuration = Configuration("similarity", place, _SETTINGS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._measure = MEASURES[configuration.one_of("measure", MEASURES, "token_set")]
        self._least = configuration.number("least", 0.0, least=0.0, most=1.0)
        self._texts = RecentValues(_folded, most=_KEPT)

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """A row with the score for every ask; none where it is below `least`, or where a text has no words."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Answer:
        given = only_text(ask, "a text to compare with")
        if isinstance(given, Failed):
            return given
        text = self._texts.get(given)
        values = [folded for value in self._values(ask) if (folded := _folded(value))]
        if not text or not values:
            return ()
        score = max(self._measure(value, text) for value in values) / 100
        return ((score,),) if score >= self._least else ()

    def _values(self, ask: Ask) -> list[str]:
        named: list[Sequence[Value]] = [one for one in ask.inputs if isinstance(one, tuple)]
        chosen = named or [ask.attributes.get(name, ()) for name in self._attributes]
        return [value for values in chosen for value in values if is_text(value)][:MAX_VALUES]


def _folded(text: str) -> str:
    return " ".join(words(text[:LONGEST]))
