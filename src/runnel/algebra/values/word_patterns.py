"""Word patterns: `conc*`, `h?ll`. In: the text of a `contains pattern`. Out: patterns, and whether words fit them.

A pattern stands for one word, after folding: `*` for any run of its letters, which may be empty, `?` for exactly
one; `*` alone is any word. A pattern that begins with letters can lead to candidates by them; one that does not must
be asked of every item.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from runnel.algebra.values.words import wild_words

Fits = Callable[[str], bool]
"""Whether a word is one that is looked for."""

_RUN = re.compile(r"[*?]*\*[*?]*")
_WILD = re.compile(r"[*?]")


def word_patterns(text: str) -> tuple[str, ...]:
    """The patterns of a text, in one form each; ValueError where a wildcard cannot stand.

    >>> word_patterns("Conc** H?ll *?"), word_patterns("new * york")
    (('conc*', 'h?ll', '?*'), ('new', '*', 'york'))
    """
    return tuple(_RUN.sub(lambda run: "?" * run[0].count("?") + "*", one) for one in wild_words(text))


def is_wild(pattern: str) -> bool:
    """Whether a pattern stands for more than one word."""
    return _WILD.search(pattern) is not None


def literal_start(pattern: str) -> str:
    """The letters that every word of a pattern begins with.

    >>> literal_start("conc*"), literal_start("h?ll"), literal_start("*a"), literal_start("rock")
    ('conc', 'h', '', 'rock')
    """
    return _WILD.split(pattern, maxsplit=1)[0]


def fits(pattern: str, word: str) -> bool:
    """Whether a word is one of a pattern's; in time that grows with their product, however hostile they are.

    >>> fits("conc*", "concert"), fits("h?ll", "hll"), fits("*a*b", "xaxbxb")
    (True, False, True)
    """
    at = in_word = 0
    star = retry = -1
    while in_word < len(word):
        if at < len(pattern) and pattern[at] == "*":
            star, retry, at = at, in_word, at + 1
        elif at < len(pattern) and pattern[at] in ("?", word[in_word]):
            at, in_word = at + 1, in_word + 1
        elif star >= 0:
            retry += 1
            at, in_word = star + 1, retry
        else:
            return False
    return pattern[at:].strip("*") == ""


@lru_cache(maxsize=4096)
def pattern_steps(patterns: tuple[str, ...]) -> tuple[Fits, ...]:
    """What each word of a run must fit."""
    return tuple(map(_step, patterns))


def _step(pattern: str) -> Fits:
    start = literal_start(pattern)
    if pattern == start:
        return pattern.__eq__
    if pattern == f"{start}*":
        return lambda word: word.startswith(start)
    return lambda word: word.startswith(start) and fits(pattern, word)


def runs(text_words: Sequence[str], steps: Sequence[Fits]) -> Iterator[int]:
    """Where runs of words begin that fit the steps one by one, word next to word.

    >>> list(runs(["a", "b", "a", "c"], pattern_steps(("a", "?"))))
    [0, 2]
    """
    first, *others = steps
    for start, word in enumerate(text_words[: max(0, len(text_words) - len(others))]):
        if first(word) and all(step(text_words[start + behind]) for behind, step in enumerate(others, 1)):
            yield start
