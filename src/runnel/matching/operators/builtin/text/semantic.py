"""Meaning: how near an item is to a phrase, in whatever words both are put.

In: a phrase in the call, and items. Out: the cosine of the angle between the two texts' embeddings, from -1 to 1. The
embeddings are WordLlama's: 32,000 pieces of words with 256 numbers each, averaged over a text. They come in a wheel
of the extra `semantic`; nothing is loaded from elsewhere. They know English best.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from runnel.errors import OperatorRefusedError, install_hint
from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.recent_values import RecentValues
from runnel.matching.operators.builtin.text.input_texts import TEXT, only_text, text_of
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.operator import Parameter

LONGEST = 2000
"""Characters of a text that are looked at."""

_SETTINGS = ("attributes", "least")
_PHRASES = 10_000
_ITEMS = 4096
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENS = "tokenizers/l2_supercat_tokenizer_config.json"
_MATRIX = "embedding.weight"

_Vector = np.ndarray[Any, np.dtype[np.float32]]


class Semantic:
    """How near an item is to a phrase in meaning: `semantic('flash mob in a city', ?score)`.

    >>> semantic = Semantic(OperatorContext())
    >>> titles = ["Hundreds dance at once in the street", "Shares fall as oil gets dearer"]
    >>> near, far = semantic.answer([Ask({"title": (title,)}, ("people dancing in a city",)) for title in titles])
    >>> near[0][0] > 0.25 > far[0][0]
    True
    """

    parameters = (Parameter("phrase", "input", "text"), Parameter("score", "result", "number"))
    cost = timedelta(microseconds=300)
    pure = True
    batch = 64

    def __init__(self, place: OperatorContext) -> None:
        configuration = Configuration("semantic", place, _SETTINGS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._least = configuration.number("least", -1.0, least=-1.0, most=1.0)
        embedder = Embedder()
        self._phrases = RecentValues(embedder.embed, most=_PHRASES)
        # A batch may ask for many phrases about one item: its text is embedded once for all of them.
        self._items = RecentValues(embedder.embed, most=_ITEMS)

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """A row with the score for every ask; none where it is below `least`, or where a text says nothing."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Answer:
        phrase = only_text(ask, "a phrase")
        if isinstance(phrase, Failed):
            return phrase
        one, other = self._phrases.get(phrase[:LONGEST]), self._items.get(text_of(ask, self._attributes, LONGEST))
        if one is None or other is None:
            return ()
        score = min(1.0, max(-1.0, float(one @ other)))
        return ((score,),) if score >= self._least else ()


class Embedder:
    """Makes vectors of length one from texts.

    The weights and the tokeniser are read as the files they are: importing the wheel's own package would set up
    logging for the whole process and bring in a client for downloads.
    """

    def __init__(self) -> None:
        folder = _folder_of_model()
        try:
            from safetensors import safe_open
            from tokenizers import Tokenizer
        except ImportError as error:
            raise _missing() from error
        with safe_open(folder / _WEIGHTS, framework="np") as weights:
            self._matrix = np.ascontiguousarray(weights.get_tensor(_MATRIX), dtype=np.float32)
        self._tokenizer = Tokenizer.from_file(str(folder / _TOKENS))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def embed(self, text: str) -> _Vector | None:
        """The mean of a text's pieces, scaled to length one; None for a text without any."""
        # One text at a time: encoding in batches starts threads, which do not survive the forks of Spark's workers.
        # In small letters: headlines have capitals where phrases have none, and the model tells them apart.
        pieces = np.array(self._tokenizer.encode(text.lower(), add_special_tokens=False).ids, dtype=np.intp)
        if not len(pieces):
            return None
        mean = self._matrix[np.minimum(pieces, len(self._matrix) - 1)].mean(axis=0, dtype=np.float32)
        length = float(np.linalg.norm(mean))
        return mean / np.float32(length) if length > 0 else None


def _folder_of_model() -> Path:
    found = find_spec("wordllama")
    folder = Path(found.origin).parent if found is not None and found.origin else None
    if folder is None or not (folder / _WEIGHTS).is_file() or not (folder / _TOKENS).is_file():
        raise _missing()
    return folder


def _missing() -> OperatorRefusedError:
    return OperatorRefusedError(
        "the model for meanings is not installed",
        place="semantic",
        hint=f"install the extra: {install_hint('semantic')}",
    )
