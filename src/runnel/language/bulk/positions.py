"""Places in a text: from offsets to lines and columns, as the parser counts them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial

from lark import Token


class Positions:
    """The lines of a text, found once, so that the place of any offset is found fast.

    >>> token = Positions("show\\n  feeds").token("FEEDS", "feeds", 7)
    >>> token.line, token.column, token.end_column
    (2, 3, 8)
    """

    def __init__(self, text: str) -> None:
        self._breaks = _line_breaks(text)

    def token(self, kind: str, value: str, start: int) -> Token:
        """A token at an offset, with its line and columns."""
        token = _bare(Token, value)
        token.type = kind
        before = bisect_left(self._breaks, start)
        token.line = before + 1
        token.column = start - (self._breaks[before - 1] if before else -1)
        if "\n" in value:
            token.end_line, token.end_column = self._place(start + len(value))
        else:
            token.end_line, token.end_column = token.line, token.column + len(value)
        return token

    def _place(self, offset: int) -> tuple[int, int]:
        before = bisect_left(self._breaks, offset)
        return before + 1, offset - (self._breaks[before - 1] if before else -1)


_bare: Callable[[type[Token], str], Token] = str.__new__
"""Makes a token without its attributes: lark's own way takes ten times as long, and most are never looked at."""


@cache
def token_without_position(kind: str) -> Callable[[str], Token]:
    """What makes tokens of a terminal that have no place.

    >>> token = token_without_position("NAME")("Rock")
    >>> str(token), token.type, token.line
    ('Rock', 'NAME', None)
    """
    nowhere = {"line": None, "column": None, "end_line": None, "end_column": None, "__slots__": ()}
    return partial(_bare, type("Unplaced", (Token,), {"type": kind, **nowhere}))


def _line_breaks(text: str) -> list[int]:
    breaks: list[int] = []
    found = text.find("\n")
    while found >= 0:
        breaks.append(found)
        found = text.find("\n", found + 1)
    return breaks
