"""Pieces of HTML, and numbers in words.

In: texts from anywhere, and pieces that are HTML already. Out: HTML. Only `text` takes what comes from outside: it
escapes, strips control characters, and cuts what nobody would read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 200
_SEEN_ROWS = 12
_LONGEST = 2000
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def text(value: str) -> str:
    """A text from anywhere as HTML text."""
    clean = _HIDDEN.sub("", value.encode("utf-8", "replace").decode("utf-8"))
    return escape(clean if len(clean) <= _LONGEST else clean[:_LONGEST] + "…")


def section(name: str, heading: str, *content: str) -> str:
    """A section of the page, with a heading."""
    return f'<section id="{name}">\n<h2>{heading}</h2>\n' + "\n".join(content) + "\n</section>\n"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of a kind, which is a class of the style sheet."""
    return f'<p class="{kind}">{text}</p>' if kind else f"<p>{text}</p>"


def panel(content: str) -> str:
    """A framed piece."""
    return f'<div class="panel">{content}</div>'


def ratio(part: int, whole: int) -> str:
    """A share in words.

    >>> ratio(10, 1490), ratio(0, 5), ratio(9, 10)
    ('1 in 149', 'none', '90%')
    """
    if part <= 0 or whole <= 0:
        return "none"
    return f"1 in {whole / part:,.0f}" if part * 4 <= whole else f"{part / whole:.0%}"


def table(caption: str, heads: Sequence[str], kinds: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table from cells that are HTML already; a kind is a class of the column."""
    classes = [f' class="{kind}"' if kind else "" for kind in kinds]
    top = "".join(f'<th scope="col"{kind}>{head}</th>' for head, kind in zip(heads, classes, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, classes, strict=True)) + "</tr>\n"
        for row in rows
    )
    name = f"<caption>{caption}</caption>" if caption else ""
    return f'<div class="scroll"><table>{name}<thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'


def long_table(heads: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of which the first rows are seen and the others, up to a limit, unfold."""
    first = table("", heads, kinds, rows[:_SEEN_ROWS])
    if len(rows) <= _SEEN_ROWS:
        return first
    others = table("", heads, kinds, rows[_SEEN_ROWS:MOST_ROWS])
    summary = f"<summary>{min(len(rows), MOST_ROWS) - _SEEN_ROWS:,} more</summary>"
    return f"{first}<details>{summary}{others}{more(len(rows))}</details>"


def more(count: int) -> str:
    """How many rows were left out, if any were."""
    return paragraph(f"And {count - MOST_ROWS:,} more.", "quiet") if count > MOST_ROWS else ""


def count(number: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> count(1, "item"), count(2400, "query", "queries")
    ('1 item', '2,400 queries')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
