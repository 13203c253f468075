"""The operator `language`: the language of an item's title and description, or of other attributes, in ISO 639-1.

The model comes from py3langid: a naive Bayes classifier over bytes, in a wheel of 5 MB, with a BSD license. On
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
from runnel.matching.operators.plugins.contract import Answer, OperatorCall, OperatorContext
from runnel.model.operator import Parameter, Row

MAX_LENGTH = 2000
"""Characters of a text that are classified. Longer texts take more time without a better result."""

_RESULTS = ("code", "confidence")
_OPTIONS = ("attributes", "languages", "least", "results")
_CODE_LENGTH = 2


class Language:
    """Identifies the language of an item, or of attributes that a call names: `language(?code, ?confidence)`.

    A text without letters has no language. The option `results 'code'` omits the confidence.

    >>> language = Language(OperatorContext({"results": "code"}))
    >>> titles = ["Rock concert in the park tonight", "Le président annonce des élections", "1234"]
    >>> language.answer([OperatorCall({"title": (title,)}) for title in titles])
    [(('en',),), (('fr',),), ()]
    """

    parameters = (Parameter("code", "result", "text"), Parameter("confidence", "result", "number"))
    cost = timedelta(microseconds=300)
    pure = True
    batch = 64

    def __init__(self, context: OperatorContext) -> None:
        configuration = Configuration("language", context, _OPTIONS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._min_confidence = configuration.number("least", 0.0, minimum=0.0, maximum=1.0)
        self._result_indexes = self._read_results(configuration)
        self._identifier = copy(_load_model())  # set_languages changes only the copy, not the cached model
        # Use only languages with an ISO 639-1 code. Most others resemble one of these, such as Wu and Chinese.
        known = sorted({code for code in self._identifier.labels if len(code) == _CODE_LENGTH})
        languages = configuration.names("languages", ",".join(known))
        for code in languages:
            if code not in known:
                raise configuration.error(
                    f"{code[:40]!r} is not a supported language{suggestion(code, known)}",
                    key="languages",
                    hint="use ISO 639-1 codes, such as en",
                )
        self._identifier.set_languages(languages)

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return a row per call: the language of its text, and the confidence from 0 to 1."""
        return [self._classify(text_of(call, self._attributes, MAX_LENGTH)) for call in calls]

    def _classify(self, text: str) -> Answer:
        if not any(map(str.isalpha, text)):
            return ()
        code, confidence = self._identifier.classify(text)
        if confidence < self._min_confidence:
            return ()
        row: Row = (str(code), float(confidence))
        return (tuple(row[index] for index in self._result_indexes),)

    @staticmethod
    def _read_results(configuration: Configuration) -> tuple[int, ...]:
        indexes = dict(zip(_RESULTS, range(len(_RESULTS)), strict=True))
        names = configuration.names("results", ",".join(_RESULTS))
        if not set(names) <= indexes.keys():
            raise configuration.error("unknown result", key="results", hint=f"results are {' and '.join(_RESULTS)}")
        return tuple(indexes[name] for name in names)


@cache
def _load_model() -> Any:
    """Load the model once per process."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
