"""Markdown pieces that the reference pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTE = "*This page is made by `scripts/make_reference.py` from the code; edit it there.*"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar inside a cell is escaped.

    >>> print(table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = [heads, *rows]
    shown = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
    return "\n".join([shown[0], f"|{'---|' * len(heads)}", *shown[1:]])


def code(text: str) -> str:
    """A text as inline code; nothing for an empty one.

    >>> code("local[*]"), code("")
    ('`local[*]`', '')
    """
    return f"`{text}`" if text else ""


def block(text: str) -> str:
    """A text as a block of code.

    >>> block("a")
    '```\\na\\n```'
    """
    return f"```\n{text}\n```"


def page(*sections: str) -> str:
    """Sections with an empty line between."""
    return "\n\n".join(sections)
