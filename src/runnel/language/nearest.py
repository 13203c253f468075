"""Suggestions for misspelled words. In: a word and candidates. Out: the most similar candidate, or None."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_MAX_LENGTH = 64
_MAX_CANDIDATES = 5_000
"""Limits on the work: comparing is quadratic in the length of the word and linear in the number of candidates, and a
catalog can contain a million names."""


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to a word, or None if none is similar enough.

    >>> nearest("tilte", ["link", "title"]), nearest("news", ["News"]), nearest("xyz", ["title"])
    ('title', 'News', None)
    """
    if not word or len(word) > _MAX_LENGTH:
        return None
    folded = word.casefold()
    allowed = range(max(1, len(word) * 2 // 3 - 1), len(word) * 3 // 2 + 2)
    by_fold: dict[str, str] = {}
    for candidate in islice((name for name in candidates if len(name) in allowed), _MAX_CANDIDATES):
        by_fold.setdefault(candidate.casefold(), candidate)
    if folded in by_fold:
        return by_fold[folded]
    matches = get_close_matches(folded, by_fold, n=1, cutoff=0.65)
    return by_fold[matches[0]] if matches else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return a hint that names the most similar candidate, or None if none is similar enough.

    >>> did_you_mean("hour", ["hours", "days"])
    'did you mean hours?'
    """
    candidate = nearest(word, candidates)
    return f"did you mean {candidate}?" if candidate else None
