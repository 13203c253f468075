"""Subsumption of phrases and word patterns: whether every text with one phrase contains the other one.

A *step* describes one word of a phrase: the word itself, or a pattern (see `algebra.values.word_patterns`). A prefix
such as `conc*` matches every word that begins with its letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Atom, Compare, Contains, ContainsPattern
from runnel.algebra.values.word_patterns import fits, is_wild, literal_start
from runnel.algebra.values.words import words

Steps = tuple[str, ...]

MAX_STEPS = 64
"""Only this many steps at the beginning of a phrase are compared."""

_MAX_TEXT_LENGTH = 1024


def steps_of(atom: Atom) -> Steps:
    """Return the steps that adjacent words match in every text that satisfies the atom, or an empty tuple if unknown.

    >>> steps_of(Compare(Attribute("title"), "=", "Rock am Ring"))
    ('rock', 'am', 'ring')
    """
    match atom:
        case Contains(_, phrase):
            return phrase[:MAX_STEPS]
        case ContainsPattern(_, patterns):
            return patterns[:MAX_STEPS]
        case Compare(Attribute(_, None), "=", str() as text) if len(text) <= _MAX_TEXT_LENGTH:
            return tuple(words(text)[:MAX_STEPS])
        case _:
            return ()


def is_pattern(atom: Atom, step: str) -> bool:
    """Return whether a step of an atom has wildcards. In a phrase of `contains`, a star is not a wildcard."""
    return isinstance(atom, ContainsPattern) and is_wild(step)


def steps_within(wide: Atom, narrow: Atom) -> bool:
    """Return whether adjacent words that match the steps of `narrow` always contain words that match those of `wide`.

    >>> title = Attribute("title")
    >>> steps_within(ContainsPattern(title, ("conc*",)), Contains(title, ("rock", "concert")))
    True
    """
    outer, inner = steps_of(wide), steps_of(narrow)
    if not outer or len(outer) > len(inner):
        return False
    starts = range(len(inner) - len(outer) + 1)
    return any(
        all(_covers(wide, step, narrow, inner[start + index]) for index, step in enumerate(outer)) for start in starts
    )


def _covers(wide: Atom, step: str, narrow: Atom, other: str) -> bool:
    """Return whether every word that matches the step `other` matches `step`."""
    if not is_pattern(wide, step):
        return step == other and not is_pattern(narrow, other)
    if not is_pattern(narrow, other):
        return fits(step, other)
    return step == other or (is_prefix(step) and literal_start(other).startswith(literal_start(step)))


def is_prefix(step: str) -> bool:
    """Return whether a pattern is a prefix: letters, followed by a single `*`."""
    return step == literal_start(step) + "*"


def parts(steps: Sequence[str], longest: int) -> Iterator[Steps]:
    """Yield all contiguous sequences of steps, up to a length of `longest`."""
    for start in range(len(steps)):
        for stop in range(start + 1, min(len(steps), start + longest) + 1):
            yield tuple(steps[start:stop])
