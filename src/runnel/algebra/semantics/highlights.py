"""Highlights: the ranges of a text that satisfy a condition, for `why`.

In: an atom and a value. Out: ranges of characters in the value, exact even if case folding and Unicode normalization
change lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

from runnel.algebra.nodes.expressions import (
    Atom,
    Contains,
    ContainsPattern,
    ContainsStems,
    Exists,
    Extends,
    InNetwork,
    References,
    RegularExpression,
    Shares,
    Similar,
)
from runnel.algebra.semantics.evaluate import satisfies
from runnel.algebra.values.links import leads_to, lies_below, links_in
from runnel.algebra.values.regular_expressions import match_spans
from runnel.algebra.values.stems import stem_words, stems_of
from runnel.algebra.values.word_patterns import Fits, pattern_steps, runs
from runnel.algebra.values.words import word_spans
from runnel.model.item import Value

Highlight = tuple[int, int]
"""The offsets of the first character and after the last one."""

MAX_HIGHLIGHTS = 100
"""How many highlights are reported per value."""


def highlights(atom: Atom, value: Value, accepted: datetime | None = None) -> list[Highlight]:
    """Return the ranges of a text that satisfy an atom, or an empty list if none do or the value is not a text.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> highlights(Contains(Attribute("title"), ("strasse",)), "Die Straße, die STRASSE")
    [(4, 10), (16, 23)]
    """
    if not isinstance(value, str) or not satisfies(atom, value, accepted):
        return []
    return list(islice(_find_highlights(atom, value), MAX_HIGHLIGHTS))


def _find_highlights(atom: Atom, text: str) -> Iterable[Highlight]:
    match atom:
        case Contains(_, phrase):
            return _find_phrases(text, tuple(word.__eq__ for word in phrase))
        case ContainsPattern(_, patterns):
            return _find_phrases(text, pattern_steps(patterns))
        case ContainsStems(_, language, phrase):
            return _find_phrases(text, tuple(stem.__eq__ for stem in stems_of(language, phrase)), language)
        case Similar(_, phrase, _):
            return ((span.start, span.end) for span in word_spans(text) if span.word in phrase)
        case RegularExpression(_, pattern):
            return match_spans(pattern, text)
        case References(_, target):
            return ((link.start, link.end) for link in links_in(text) if leads_to(link, target))
        case Extends(_, prefix):
            return ((link.start, link.end) for link in links_in(text) if lies_below(link, prefix))
        case Shares(_, shared):
            return ((link.start, link.end) for link in links_in(text) if link.url in shared)
        case InNetwork():
            return ((len(text) - len(text.lstrip()), len(text.rstrip())),)
        case Exists():
            return ()
        case _:
            return ((0, len(text)),) if text else ()


def _find_phrases(text: str, steps: tuple[Fits, ...], language: str | None = None) -> Iterator[Highlight]:
    spans = word_spans(text)
    words = [span.word for span in spans]
    if language is not None:
        words = stem_words(language, words)
    end = 0
    for start in runs(words, steps):
        if start >= end:  # skip occurrences that overlap the previous one
            end = start + len(steps)
            yield spans[start].start, spans[end - 1].end
