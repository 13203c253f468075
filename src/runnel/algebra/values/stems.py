"""Stems of words, by the Snowball algorithms. In: folded words and a language. Out: their stems."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import Stemmer


@cache
def languages() -> tuple[str, ...]:
    """Return the names of the languages that have a stemmer.

    >>> "english" in languages(), "klingon" in languages()
    (True, False)
    """
    return tuple(sorted(Stemmer.algorithms()))


class _Stemmers(threading.local):
    """The stemmers of a thread. A stemmer has an internal buffer, so threads cannot share it."""

    def __init__(self) -> None:
        self.of_language: dict[str, Any] = {}


_stemmers = _Stemmers()


def stem_words(language: str, words: Sequence[str]) -> list[str]:
    """Return the stems of words, in order.

    >>> stem_words("english", ["running", "shoes"])
    ['run', 'shoe']
    """
    stemmer = _stemmers.of_language.get(language)
    if stemmer is None:
        stemmer = _stemmers.of_language[language] = Stemmer.Stemmer(language)
    return list(stemmer.stemWords(list(words)))


@lru_cache(maxsize=4096)
def stems_of(language: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stems of an atom's words. The results are cached."""
    return tuple(stem_words(language, words))
