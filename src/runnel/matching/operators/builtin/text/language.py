"""The language of a text: the title and description of items in (or what a call names), ISO 639-1 codes out.

The model is py3langid's: a naive Bayes decision over bytes, in a wheel of 5 MB, under a BSD licence. On
headlines it is as good as models of twenty times its size, and takes a tenth of their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import timedelta
from functools import cache
from typing import Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.suggest import suggestion
from runnel.matching.operators.builtin.text.input_texts import TEXT, text_of
from runnel.matching.operators.plugins.contract import Answer, Ask, OperatorContext
from runnel.model.operator import Parameter, Row

LONGEST = 2000
"""Characters of a text that are looked at: more make the answer no surer, only dearer."""

_RESULTS = ("code", "confidence")
_SETTINGS = ("attributes", "languages", "least", "results")
_CODE = 2


class Language:
    """The language of an item: `language(?code, ?confidence)`, or of an attribute where a call names one.

    A text without letters has no language. `results 'code'` in the configuration leaves the confidence out.

    >>> language = Language(OperatorContext({"results": "code"}))
    >>> titles = ["Rock concert in the park tonight", "Le président annonce des élections", "1234"]
    >>> language.answer([Ask({"title": (title,)}) for title in titles])
    [(('en',),), (('fr',),), ()]
    """

    parameters = (Parameter("code", "result", "text"), Parameter("confidence", "result", "number"))
    cost = timedelta(microseconds=300)
    pure = True
    batch = 64

    def __init__(self, place: OperatorContext) -> None:
        configuration = Configuration("language", place, _SETTINGS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._least = configuration.number("least", 0.0, least=0.0, most=1.0)
        self._chosen = self._chosen_results(configuration)
        self._identifier = copy(_model())  # Limiting its languages leaves the model itself as it is.
        # Of the model's languages those with a code in ISO 639-1; others are mostly near ones, such as Wu to Chinese.
        known = sorted({code for code in self._identifier.labels if len(code) == _CODE})
        wanted = configuration.names("languages", ",".join(known))
        for code in wanted:
            if code not in known:
                raise configuration.refused(
                    f"{code[:40]!r} is no language that is known{suggestion(code, known)}",
                    key="languages",
                    hint="codes of ISO 639-1, such as en",
                )
        self._identifier.set_languages(wanted)

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """A row with the language of every ask's text, and how sure it is: from 0 to 1."""
        return [self._one(text_of(ask, self._attributes, LONGEST)) for ask in asks]

    def _one(self, text: str) -> Answer:
        if not any(map(str.isalpha, text)):
            return ()
        code, confidence = self._identifier.classify(text)
        if confidence < self._least:
            return ()
        row: Row = (str(code), float(confidence))
        return (tuple(row[place] for place in self._chosen),)

    @staticmethod
    def _chosen_results(configuration: Configuration) -> tuple[int, ...]:
        places = dict(zip(_RESULTS, range(len(_RESULTS)), strict=True))
        names = configuration.names("results", ",".join(_RESULTS))
        if not set(names) <= places.keys():
            raise configuration.refused("there is no such result", key="results", hint=", ".join(_RESULTS))
        return tuple(places[name] for name in names)


@cache
def _model() -> Any:
    """The model, once for each process."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
