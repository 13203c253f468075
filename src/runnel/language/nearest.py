"""The known word that somebody probably meant. In: a word and the words that exist. Out: one of them, or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_LONGEST = 64
_MOST = 5_000
"""Comparing is quadratic in the word and linear in the candidates; a catalog may hold a million names."""


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to a word, or None where none is near.

    >>> nearest("tilte", ["link", "title"]), nearest("news", ["News"]), nearest("xyz", ["title"])
    ('title', 'News', None)
    """
    if not word or len(word) > _LONGEST:
        return None
    folded = word.casefold()
    allowed = range(max(1, len(word) * 2 // 3 - 1), len(word) * 3 // 2 + 2)
    by_fold: dict[str, str] = {}
    for candidate in islice((one for one in candidates if len(one) in allowed), _MOST):
        by_fold.setdefault(candidate.casefold(), candidate)
    if folded in by_fold:
        return by_fold[folded]
    found = get_close_matches(folded, by_fold, n=1, cutoff=0.65)
    return by_fold[found[0]] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """A hint that names the nearest candidate, or None.

    >>> did_you_mean("hour", ["hours", "days"])
    'did you mean hours?'
    """
    found = nearest(word, candidates)
    return f"did you mean {found}?" if found else None
