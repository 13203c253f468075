"""The operator `semantic`: the similarity in meaning between an item and a phrase, regardless of their words.

The result is the cosine similarity, from -1 to 1, of the two texts' embeddings. The embeddings come from WordLlama:
32,000 tokens with 256 dimensions each, averaged over a text. They are part of the extra `semantic`; nothing is
downloaded. They work best for English.
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
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.operator import Parameter

MAX_LENGTH = 2000
"""Characters of a text that are embedded."""

_OPTIONS = ("attributes", "least")
_MAX_CACHED_PHRASES = 10_000
_MAX_CACHED_ITEMS = 4096
_WEIGHTS_FILE = "weights/l2_supercat_256.safetensors"
_TOKENIZER_FILE = "tokenizers/l2_supercat_tokenizer_config.json"
_MATRIX = "embedding.weight"

_Vector = np.ndarray[Any, np.dtype[np.float32]]


class Semantic:
    """Computes how similar an item is to a phrase in meaning: `semantic('flash mob in a city', ?score)`.

    >>> semantic = Semantic(OperatorContext())
    >>> titles = ["Hundreds dance at once in the street", "Shares fall as oil gets dearer"]
    >>> phrase = "people dancing in a city"
    >>> near, far = semantic.answer([OperatorCall({"title": (title,)}, (phrase,)) for title in titles])
    >>> near[0][0] > 0.25 > far[0][0]
    True
    """

    parameters = (Parameter("phrase", "input", "text"), Parameter("score", "result", "number"))
    cost = timedelta(microseconds=300)
    pure = True
    batch = 64

    def __init__(self, context: OperatorContext) -> None:
        configuration = Configuration("semantic", context, _OPTIONS)
        self._attributes = configuration.names("attributes", ",".join(TEXT))
        self._min_score = configuration.number("least", -1.0, minimum=-1.0, maximum=1.0)
        embedder = Embedder()
        self._phrases = RecentValues(embedder.embed, max_values=_MAX_CACHED_PHRASES)
        # A batch may compare many phrases with the same item, whose text is then embedded only once.
        self._items = RecentValues(embedder.embed, max_values=_MAX_CACHED_ITEMS)

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return a row with the score per call, or no row if it is below `least` or a text has no embedding."""
        return [self._answer(call) for call in calls]

    def _answer(self, call: OperatorCall) -> Answer:
        phrase = only_text(call, "a phrase")
        if isinstance(phrase, FailedCall):
            return phrase
        phrase_vector = self._phrases.get(phrase[:MAX_LENGTH])
        item_vector = self._items.get(text_of(call, self._attributes, MAX_LENGTH))
        if phrase_vector is None or item_vector is None:
            return ()
        score = min(1.0, max(-1.0, float(phrase_vector @ item_vector)))
        return ((score,),) if score >= self._min_score else ()


class Embedder:
    """Converts texts to vectors of length one.

    The weights and the tokenizer are read directly from their files. Importing the package `wordllama` would
    configure logging for the whole process and import a client for downloads.
    """

    def __init__(self) -> None:
        folder = _model_folder()
        try:
            from safetensors import safe_open
            from tokenizers import Tokenizer
        except ImportError as error:
            raise _not_installed() from error
        with safe_open(folder / _WEIGHTS_FILE, framework="np") as weights:
            self._matrix = np.ascontiguousarray(weights.get_tensor(_MATRIX), dtype=np.float32)
        self._tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def embed(self, text: str) -> _Vector | None:
        """Return the mean of a text's token vectors, scaled to length one, or None for a text without tokens."""
        # Encode one text at a time: encoding a batch starts threads, which do not survive the forks of Spark workers.
        # Use lower case: headlines have capitals where phrases have none, and the model distinguishes them.
        tokens = np.array(self._tokenizer.encode(text.lower(), add_special_tokens=False).ids, dtype=np.intp)
        if not len(tokens):
            return None
        mean = self._matrix[np.minimum(tokens, len(self._matrix) - 1)].mean(axis=0, dtype=np.float32)
        length = float(np.linalg.norm(mean))
        return mean / np.float32(length) if length > 0 else None


def _model_folder() -> Path:
    spec = find_spec("wordllama")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    if folder is None or not (folder / _WEIGHTS_FILE).is_file() or not (folder / _TOKENIZER_FILE).is_file():
        raise _not_installed()
    return folder


def _not_installed() -> OperatorRefusedError:
    return OperatorRefusedError(
        "the embedding model is not installed",
        place="semantic",
        hint=f"install the extra: {install_hint('semantic')}",
    )
