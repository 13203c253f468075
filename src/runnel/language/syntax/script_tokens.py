"""Tokens of the language: one regular expression cuts a script into words, constants, signs and graph blocks.

In: a script. Out: tokens that know their place. Blanks and comments separate tokens and are none themselves.
"""

from __future__ import annotations

import re
from typing import Final

from runnel.errors import Span

BLANK: Final = r"(?:[\s\ufeff\u200b]++|--[^\n]*+)*+"
"""What may stand between two tokens: blanks and comments."""

_PIECE = (
    r"""[^{}'"<-]++|"(?:[^"\\\n\r]++|\\.)*+"?|'(?:[^'\\\n\r]++|\\.)*+'?|<[^\x00-\x20<>"{}|^`\\]*+>|--[^\n]*+|[<-]"""
)
_INNERMOST = rf"\{{(?:{_PIECE})*+\}}"
_INNER = rf"\{{(?:{_PIECE}|{_INNERMOST})*+\}}"
_BRACES = rf"\{{(?:{_PIECE}|{_INNER})*+\}}"
"""A balanced block. `read_graph` refuses braces inside it, but two levels of them still belong to the block. It also
refuses a text that is not closed: that text reaches to the end of its line, and no character is read twice."""

WORD: Final = "WORD"
STRANGE_WORD: Final = "STRANGE_WORD"
"""A word with other characters than ASCII letters, digits and `_`; it has no place in the language."""
TEXT: Final = "TEXT"
QUOTED: Final = "QUOTED"
NUMBER: Final = "NUMBER"
VARIABLE: Final = "VARIABLE"
BINDING: Final = "BINDING"
BLOCK: Final = "BLOCK"
OPEN_BLOCK: Final = "OPEN_BLOCK"
"""`graph {` without its closing brace: it reaches to the end of the script."""
PARAMETER: Final = "PARAMETER"
"""`:word`. A reader replaces it by the token of its value."""
TRUTH: Final = "TRUTH"
DATE: Final = "DATE"
LIST: Final = "LIST"
"""Kinds that only values of parameters have, so that they are read as constants and as nothing else."""
SIGN: Final = "SIGN"
END: Final = "END"

# Quantifiers are possessive, so that an unclosed quote costs one pass over the text and is never closed by half of a
# doubled quote. A number has no sign of its own: whether `-` begins a number depends on what stands before it.
TOKEN: Final = re.compile(
    BLANK
    + rf"""(?:
        (?P<{BLOCK}>[Gg][Rr][Aa][Pp][Hh]{BLANK}{_BRACES})
      | (?P<{OPEN_BLOCK}>[Gg][Rr][Aa][Pp][Hh]{BLANK}\{{(?s:.)*+)
      | (?P<{WORD}>[A-Za-z_][A-Za-z0-9_]*+(?!\w))
      | (?P<{TEXT}>'[^']*+(?:''[^']*+)*+')
      | (?P<{NUMBER}>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
      | (?P<{QUOTED}>"[^"]*+(?:""[^"]*+)*+")
      | (?P<{VARIABLE}>\$[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<{BINDING}>\?[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<{PARAMETER}>(?<!\w):[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<{STRANGE_WORD}>\w++)
      | (?P<{SIGN}><=|>=|<>|!=|&&|\|\||/\*|//|(?s:.))
      | (?P<{END}>\Z)
    )""",
    re.VERBOSE,
)


class Script:
    """A text, and the lines and columns of its characters.

    >>> Script("show\\n  feeds").span(7, 12)
    Span(line=2, column=3, end_column=8)
    """

    __slots__ = ("_line", "_line_start", "_offset", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._rewind()

    def _rewind(self) -> None:
        self._offset, self._line, self._line_start = 0, 1, 0

    def span(self, start: int, end: int) -> Span:
        """The place of some characters; of several lines of them, the place of the first.

        Lines are counted on from the last place. Only errors look back to an earlier line, so a script is read once.
        """
        if start < self._line_start:
            self._rewind()
        lines = self.text.count("\n", self._offset, start)
        if lines:
            self._line += lines
            self._line_start = self.text.rindex("\n", self._offset, start) + 1
        self._offset = start
        column = start - self._line_start + 1
        is_flat = end > start and self.text.find("\n", start, end) < 0
        return Span(self._line, column, column + (end - start if is_flat else 1))


class Token:
    """A token as written, and where it stands. The text of a parameter is that of its value.

    >>> Token("graph { }").span
    Span(line=1, column=1, end_column=10)
    """

    __slots__ = ("_script", "end", "start", "text")

    def __init__(self, text: str, start: int = 0, end: int | None = None, script: Script | None = None) -> None:
        self.text = text
        self.start = start
        self.end = len(text) if end is None else end
        self._script = script

    @property
    def span(self) -> Span:
        """The place of the token in its script."""
        return (self._script or Script(self.text)).span(self.start, self.end)

    def span_inside(self, start: int, end: int) -> Span:
        """The place of some characters of the token; of a parameter, the place of the whole."""
        if self.end - self.start != len(self.text):
            return self.span
        return (self._script or Script(self.text)).span(self.start + start, self.start + end)
