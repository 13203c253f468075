"""Notes on the phrases of `contains` that have characters which the search ignores, such as the `+` of `c++`.

In: a script. Out: notes with the line and column of each phrase. A note is not an error: the statement is executed,
and its result shows the note.
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
"""Matches phrases, and, in order to skip them, other texts, quoted names and comments."""

_SINGLE_PHRASE = re.compile(_PHRASE)
_WITHOUT_SIGNS = re.compile(r"'[\w\s]*+'", re.ASCII)
_SEPARATORS = frozenset(".,;:!'\"’ʼ＇…/")
_SEPARATOR_CATEGORIES = frozenset({"Pd", "Pi", "Pf", "Ps", "Pe", "Zs", "Zl", "Zp", "Cc", "Cf", "Mn"})
"""Characters and Unicode categories that separate words in any text. Users expect that they are ignored."""


class Note(NamedTuple):
    """The text of a note, and the 1-based line and column of its phrase."""

    position: tuple[int, int]
    text: str


def phrase_notes(text: str, parameters: Parameters | None = None) -> list[Note]:
    """Return notes on the phrases of a script, including those that are passed as parameters.

    >>> for position, note in phrase_notes("create feed C from A where x contains 'c++' and y contains 'rock*';"):
    ...     print(position, note)
    (1, 39) contains 'c++' finds the word c: + is ignored (to find these characters write: matches 'c\\+\\+')
    (1, 60) contains 'rock*' finds the word rock: * is ignored (to use wildcards write: contains pattern 'rock*')
    """
    notes = []
    line, line_start = 1, 0
    for offset, phrase in _find_phrases(text, parameters or Parameters()):
        line += text.count("\n", line_start, offset)
        line_start = max(line_start, text.rfind("\n", 0, offset) + 1)
        notes.append(Note((line, offset - line_start + 1), _write_note(phrase)))
    return notes


def _find_phrases(text: str, parameters: Parameters) -> Iterator[tuple[int, str]]:
    """Yield the phrases with ignored characters, and their offsets."""
    for match in _PHRASES.finditer(text):
        if match["phrases"] is None:
            continue
        for token in _SINGLE_PHRASE.finditer(text, *match.span("phrases")):
            if _WITHOUT_SIGNS.fullmatch(token[0]):
                continue
            is_parameter = token[0][0] == ":"
            phrases = parameters.texts(token[0][1:]) if is_parameter else [token[0][1:-1].replace("''", "'")]
            for phrase in phrases:
                if _ignored_characters(phrase):
                    yield token.start(), phrase


def _ignored_characters(phrase: str) -> str:
    """Return the characters of a phrase that belong to no word and are not ordinary separators, each once."""
    spans = word_spans(phrase)
    if not spans:
        return ""  # the parser rejects a phrase without words
    outside = bytearray(b"\1" * len(phrase))
    for span in spans:
        outside[span.start : span.end] = bytes(span.end - span.start)
    starts = {span.start for span in spans}
    characters: dict[str, None] = {}
    for index, character in enumerate(phrase):
        if not outside[index] or unicodedata.category(character) in _SEPARATOR_CATEGORIES:
            continue
        # A dot before a word, as in `.net`, is not a separator.
        is_leading_dot = character == "." and index + 1 in starts and (index == 0 or phrase[index - 1].isspace())
        if is_leading_dot or character not in _SEPARATORS:
            characters[character] = None
    return "".join(characters)


def _write_note(phrase: str) -> str:
    ignored = _ignored_characters(phrase)
    words = [span.word for span in word_spans(phrase)]
    quoted = phrase.replace("'", "''")
    noun = "word" if len(words) == 1 else "words"
    if ignored.strip("*?") == "":
        hint = f"to use wildcards write: contains pattern '{quoted}'"
    else:
        hint = f"to find these characters write: matches '{_escape(quoted)}'"
    verb = "is" if len(ignored) == 1 else "are"
    return f"contains '{quoted}' finds the {noun} {' '.join(words)}: {' '.join(ignored)} {verb} ignored ({hint})"


def _escape(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
