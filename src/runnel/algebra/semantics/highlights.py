"""Where in a text a condition is satisfied, for those who want to see it.

In: an atom and a value. Out: spans of the value's characters, exact also where folding and composing change lengths.
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
"""From the first character to behind the last."""

MOST_HIGHLIGHTS = 100
"""Places that are told of one value: nobody looks at more."""


def highlights(atom: Atom, value: Value, accepted: datetime | None = None) -> list[Highlight]:
    """From where to where a text satisfies an atom, in order; empty where it does not, or is no text.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> highlights(Contains(Attribute("title"), ("strasse",)), "Die Straße, die STRASSE")
    [(4, 10), (16, 23)]
    """
    if not isinstance(value, str) or not satisfies(atom, value, accepted):
        return []
    return list(islice(_found(atom, value), MOST_HIGHLIGHTS))


def _found(atom: Atom, text: str) -> Iterable[Highlight]:
    match atom:
        case Contains(_, phrase):
            return _runs(text, tuple(word.__eq__ for word in phrase))
        case ContainsPattern(_, patterns):
            return _runs(text, pattern_steps(patterns))
        case ContainsStems(_, language, phrase):
            return _runs(text, tuple(stem.__eq__ for stem in stems_of(language, phrase)), language)
        case Similar(_, phrase, _):
            return ((one.start, one.end) for one in word_spans(text) if one.word in phrase)
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


def _runs(text: str, steps: tuple[Fits, ...], language: str | None = None) -> Iterator[Highlight]:
    found = word_spans(text)
    looked_at = [one.word for one in found]
    if language is not None:
        looked_at = stem_words(language, looked_at)
    end = 0
    for start in runs(looked_at, steps):
        if start >= end:  # what overlaps a run that was told already is seen there
            end = start + len(steps)
            yield found[start].start, found[end - 1].end
