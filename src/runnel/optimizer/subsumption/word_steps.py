"""Phrases and word patterns: where words that must stand next to each other contain others that must.

A *step* is what one word must be: the word itself, or a pattern (see `algebra.values.word_patterns`). A prefix such
as `conc*` lets through every word that begins so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Atom, Compare, Contains, ContainsPattern
from runnel.algebra.values.word_patterns import fits, is_wild, literal_start
from runnel.algebra.values.words import words

Steps = tuple[str, ...]

LONGEST = 64
"""Of longer phrases and texts only the beginning is looked at."""

_LONGEST_TEXT = 1024


def steps_of(atom: Atom) -> Steps:
    """What words next to each other must be, wherever the atom holds; nothing if that is not known.

    >>> steps_of(Compare(Attribute("title"), "=", "Rock am Ring"))
    ('rock', 'am', 'ring')
    """
    match atom:
        case Contains(_, phrase):
            return phrase[:LONGEST]
        case ContainsPattern(_, patterns):
            return patterns[:LONGEST]
        case Compare(Attribute(_, None), "=", str() as text) if len(text) <= _LONGEST_TEXT:
            return tuple(words(text)[:LONGEST])
        case _:
            return ()


def is_pattern(atom: Atom, step: str) -> bool:
    """Whether a step of an atom stands for more than one word; in a phrase, a star is no wildcard."""
    return isinstance(atom, ContainsPattern) and is_wild(step)


def steps_within(wide: Atom, narrow: Atom) -> bool:
    """Whether words that satisfy all steps of `narrow`, in a row, contain a row that satisfies those of `wide`.

    >>> title = Attribute("title")
    >>> steps_within(ContainsPattern(title, ("conc*",)), Contains(title, ("rock", "concert")))
    True
    """
    outer, inner = steps_of(wide), steps_of(narrow)
    if not outer or len(outer) > len(inner):
        return False
    starts = range(len(inner) - len(outer) + 1)
    return any(
        all(_covers(wide, step, narrow, inner[start + place]) for place, step in enumerate(outer)) for start in starts
    )


def _covers(wide: Atom, step: str, narrow: Atom, other: str) -> bool:
    """Whether every word that fits the other step fits this one."""
    if not is_pattern(wide, step):
        return step == other and not is_pattern(narrow, other)
    if not is_pattern(narrow, other):
        return fits(step, other)
    return step == other or (is_prefix(step) and literal_start(other).startswith(literal_start(step)))


def is_prefix(step: str) -> bool:
    """Whether a pattern is letters and then anything."""
    return step == literal_start(step) + "*"


def parts(steps: Sequence[str], longest: int) -> Iterator[Steps]:
    """All rows of steps inside a row of steps, up to a length."""
    for start in range(len(steps)):
        for stop in range(start + 1, min(len(steps), start + longest) + 1):
            yield tuple(steps[start:stop])
