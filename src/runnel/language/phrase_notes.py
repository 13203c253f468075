"""Notes on phrases: which characters of a `contains` are ignored, because words have none of them.

In: a script. Out: notes with the line and column that each belongs to. A note is no error: the statement is carried
out, and its answer shows the note.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from runnel.algebra.values.words import word_spans
from runnel.language.syntax.parameters import Parameters

_TEXT = r"'[^']*+(?:''[^']*+)*+'"
_PHRASE = rf"(?:{_TEXT}|:[A-Za-z_][A-Za-z0-9_]*+)"
_PHRASES = re.compile(
    rf"""{_TEXT} | "[^"]*+" | --[^\n]*+
      | \bcontains\s++ (?: (?:all|any) \s*+ \(?\s*+ )? (?P<phrases> {_PHRASE} (?:\s*+,\s*+{_PHRASE})*+ )""",
    re.VERBOSE | re.IGNORECASE,
)
"""Phrases, and what is skipped because it is none: other texts, quoted names and comments."""

_ONE = re.compile(_PHRASE)
_PLAIN = re.compile(r"'[\w\s]*+'", re.ASCII)
_SEPARATING = frozenset(".,;:!'\"’ʼ＇…/")
_SEPARATING_KINDS = frozenset({"Pd", "Pi", "Pf", "Ps", "Pe", "Zs", "Zl", "Zp", "Cc", "Cf", "Mn"})
"""Characters and categories of characters that separate words in any text, so that nobody is surprised: no note."""


class Note(NamedTuple):
    """A note, and where in the script the phrase is that it is about: 1-based line and column."""

    place: tuple[int, int]
    text: str


def phrase_notes(text: str, parameters: Parameters | None = None) -> list[Note]:
    """Notes on the phrases of a script, and on those that its parameters stand for.

    >>> for place, note in phrase_notes("create feed C from A where x contains 'c++' and y contains 'rock*';"):
    ...     print(place, note)
    (1, 39) contains 'c++' finds the word c: + is ignored (to find these characters write: matches 'c\\+\\+')
    (1, 60) contains 'rock*' finds the word rock: * is ignored (to use wildcards write: contains pattern 'rock*')
    """
    notes = []
    line, line_start = 1, 0
    for offset, phrase in _surprising(text, parameters or Parameters()):
        line += text.count("\n", line_start, offset)
        line_start = max(line_start, text.rfind("\n", 0, offset) + 1)
        notes.append(Note((line, offset - line_start + 1), _note(phrase)))
    return notes


def _surprising(text: str, parameters: Parameters) -> Iterator[tuple[int, str]]:
    """The phrases with ignored characters, and their offsets."""
    for match in _PHRASES.finditer(text):
        if match["phrases"] is None:
            continue
        for written in _ONE.finditer(text, *match.span("phrases")):
            if _PLAIN.fullmatch(written[0]):
                continue
            is_parameter = written[0][0] == ":"
            phrases = parameters.texts(written[0][1:]) if is_parameter else [written[0][1:-1].replace("''", "'")]
            for phrase in phrases:
                if _ignored(phrase):
                    yield written.start(), phrase


def _ignored(phrase: str) -> str:
    """The characters of a phrase that are in no word and do not merely separate words, each once."""
    found = word_spans(phrase)
    if not found:
        return ""  # the statement is refused
    outside = bytearray(b"\1" * len(phrase))
    for span in found:
        outside[span.start : span.end] = bytes(span.end - span.start)
    starts = {span.start for span in found}
    characters: dict[str, None] = {}
    for index, character in enumerate(phrase):
        if not outside[index] or unicodedata.category(character) in _SEPARATING_KINDS:
            continue
        leads = character == "." and index + 1 in starts and (index == 0 or phrase[index - 1].isspace())
        if leads or character not in _SEPARATING:
            characters[character] = None
    return "".join(characters)


def _note(phrase: str) -> str:
    ignored = _ignored(phrase)
    found = [span.word for span in word_spans(phrase)]
    quoted = phrase.replace("'", "''")
    noun = "word" if len(found) == 1 else "words"
    if ignored.strip("*?") == "":
        hint = f"to use wildcards write: contains pattern '{quoted}'"
    else:
        hint = f"to find these characters write: matches '{_escaped(quoted)}'"
    verb = "is" if len(ignored) == 1 else "are"
    return f"contains '{quoted}' finds the {noun} {' '.join(found)}: {' '.join(ignored)} {verb} ignored ({hint})"


def _escaped(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
