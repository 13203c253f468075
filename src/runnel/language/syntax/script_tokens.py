"""Tokens of the language. One regular expression splits a script into words, constants, signs and graph blocks.

In: a script. Out: tokens with their spans. Whitespace and comments separate tokens and are not tokens themselves.
"""

from __future__ import annotations

import re
from typing import Final

from runnel.errors import Span

BLANK: Final = r"(?:[\s\ufeff\u200b]++|--[^\n]*+)*+"
"""Whitespace and comments between two tokens."""

_BLOCK_PART = (
    r"""[^{}'"<-]++|"(?:[^"\\\n\r]++|\\.)*+"?|'(?:[^'\\\n\r]++|\\.)*+'?|<[^\x00-\x20<>"{}|^`\\]*+>|--[^\n]*+|[<-]"""
)
_INNERMOST = rf"\{{(?:{_BLOCK_PART})*+\}}"
_INNER = rf"\{{(?:{_BLOCK_PART}|{_INNERMOST})*+\}}"
_BRACES = rf"\{{(?:{_BLOCK_PART}|{_INNER})*+\}}"
"""A block in balanced braces. Up to two levels of inner braces belong to the token; `read_graph` rejects them with a
hint. It also rejects unclosed texts, which end at the end of their line here, so that no character is read twice."""

WORD: Final = "WORD"
NON_ASCII_WORD: Final = "NON_ASCII_WORD"
"""A word with a non-ASCII letter or digit. No rule of the grammar accepts it."""
TEXT: Final = "TEXT"
QUOTED: Final = "QUOTED"
NUMBER: Final = "NUMBER"
VARIABLE: Final = "VARIABLE"
BINDING: Final = "BINDING"
BLOCK: Final = "BLOCK"
OPEN_BLOCK: Final = "OPEN_BLOCK"
"""`graph {` without a closing brace. The token extends to the end of the script."""
PARAMETER: Final = "PARAMETER"
"""`:word`. `TokenReader` replaces it by the token of its value."""
TRUTH: Final = "TRUTH"
DATE: Final = "DATE"
LIST: Final = "LIST"
"""Token kinds of parameter values only, so that such a value is accepted as a constant and as nothing else."""
SIGN: Final = "SIGN"
END: Final = "END"

# Quantifiers are possessive, so that an unclosed quote costs one pass over the text and is never closed by half of a
# doubled quote. A number token has no sign, because whether `-` belongs to a number depends on the preceding tokens.
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
      | (?P<{NON_ASCII_WORD}>\w++)
      | (?P<{SIGN}><=|>=|<>|!=|&&|\|\||/\*|//|(?s:.))
      | (?P<{END}>\Z)
    )""",
    re.VERBOSE,
)


class Script:
    """The text of a script, and the lines and columns of its characters.

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
        """Return the span of the characters from `start` to `end`, or of the first one if they cover several lines.

        Lines are counted from the position of the previous call. Only errors refer to an earlier line, so parsing
        counts the lines of a script once.
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
    """The text of a token and its offsets in the script. The text of a parameter is that of its value.

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
        """The span of the token in its script."""
        return (self._script or Script(self.text)).span(self.start, self.end)

    def span_inside(self, start: int, end: int) -> Span:
        """Return the span of a range of characters of the token. For a parameter, return its whole span."""
        if self.end - self.start != len(self.text):
            return self.span
        return (self._script or Script(self.text)).span(self.start + start, self.start + end)
