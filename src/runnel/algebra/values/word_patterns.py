"""Word patterns such as `conc*` and `h?ll`. In: the text of a `contains pattern`. Out: patterns, and which words
match.

A pattern matches one word after case folding: `*` stands for any number of characters, `?` for exactly one, and `*`
alone matches any word. An index can find candidates for a pattern by the letters that it begins with. A pattern that
begins with a wildcard must be evaluated on every item.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from runnel.algebra.values.words import wild_words

Fits = Callable[[str], bool]
"""Returns whether a word matches."""

_WILDCARDS = re.compile(r"[*?]*\*[*?]*")
_WILDCARD = re.compile(r"[*?]")


def word_patterns(text: str) -> tuple[str, ...]:
    """Return the patterns of a text in canonical form. Raise ValueError if a wildcard is not allowed (see
    `wild_words`).

    >>> word_patterns("Conc** H?ll *?"), word_patterns("new * york")
    (('conc*', 'h?ll', '?*'), ('new', '*', 'york'))
    """
    return tuple(_WILDCARDS.sub(lambda run: "?" * run[0].count("?") + "*", word) for word in wild_words(text))


def is_wild(pattern: str) -> bool:
    """Return whether a pattern has a wildcard."""
    return _WILDCARD.search(pattern) is not None


def literal_start(pattern: str) -> str:
    """Return the letters of a pattern before its first wildcard.

    >>> literal_start("conc*"), literal_start("h?ll"), literal_start("*a"), literal_start("rock")
    ('conc', 'h', '', 'rock')
    """
    return _WILDCARD.split(pattern, maxsplit=1)[0]


def fits(pattern: str, word: str) -> bool:
    """Return whether a word matches a pattern, in time of at most the product of their lengths.

    >>> fits("conc*", "concert"), fits("h?ll", "hll"), fits("*a*b", "xaxbxb")
    (True, False, True)
    """
    in_pattern = in_word = 0
    star = retry = -1
    while in_word < len(word):
        if in_pattern < len(pattern) and pattern[in_pattern] == "*":
            star, retry, in_pattern = in_pattern, in_word, in_pattern + 1
        elif in_pattern < len(pattern) and pattern[in_pattern] in ("?", word[in_word]):
            in_pattern, in_word = in_pattern + 1, in_word + 1
        elif star >= 0:
            retry += 1
            in_pattern, in_word = star + 1, retry
        else:
            return False
    return pattern[in_pattern:].strip("*") == ""


@lru_cache(maxsize=4096)
def pattern_steps(patterns: tuple[str, ...]) -> tuple[Fits, ...]:
    """Return one matching function per pattern. The results are cached."""
    return tuple(map(_compile_step, patterns))


def _compile_step(pattern: str) -> Fits:
    start = literal_start(pattern)
    if pattern == start:
        return pattern.__eq__
    if pattern == f"{start}*":
        return lambda word: word.startswith(start)
    return lambda word: word.startswith(start) and fits(pattern, word)


def runs(text_words: Sequence[str], steps: Sequence[Fits]) -> Iterator[int]:
    """Yield the indexes at which adjacent words match all steps, one word per step.

    >>> list(runs(["a", "b", "a", "c"], pattern_steps(("a", "?"))))
    [0, 2]
    """
    first, *others = steps
    for start, word in enumerate(text_words[: max(0, len(text_words) - len(others))]):
        if first(word) and all(step(text_words[start + offset]) for offset, step in enumerate(others, 1)):
            yield start
