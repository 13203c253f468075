"""HTML fragments, and numbers as text.

In: untrusted texts, and fragments that are already HTML. Out: HTML. Only `text` accepts untrusted input: it escapes
it, removes control characters, and truncates long texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

MAX_ROWS = 200
_SEEN_ROWS = 12
_MAX_TEXT_LENGTH = 2000
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def text(value: str) -> str:
    """Convert an untrusted text to HTML."""
    clean = _HIDDEN.sub("", value.encode("utf-8", "replace").decode("utf-8"))
    return escape(clean if len(clean) <= _MAX_TEXT_LENGTH else clean[:_MAX_TEXT_LENGTH] + "…")


def section(name: str, heading: str, *content: str) -> str:
    """Return a section of the page with a heading."""
    return f'<section id="{name}">\n<h2>{heading}</h2>\n' + "\n".join(content) + "\n</section>\n"


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph. `kind` is a class of the style sheet."""
    return f'<p class="{kind}">{text}</p>' if kind else f"<p>{text}</p>"


def panel(content: str) -> str:
    """Return a framed fragment."""
    return f'<div class="panel">{content}</div>'


def ratio(part: int, total: int) -> str:
    """Describe a share in words.

    >>> ratio(10, 1490), ratio(0, 5), ratio(9, 10)
    ('1 in 149', 'none', '90%')
    """
    if part <= 0 or total <= 0:
        return "none"
    return f"1 in {total / part:,.0f}" if part * 4 <= total else f"{part / total:.0%}"


def table(caption: str, heads: Sequence[str], kinds: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are already HTML. A kind is a class of the column."""
    classes = [f' class="{kind}"' if kind else "" for kind in kinds]
    top = "".join(f'<th scope="col"{kind}>{head}</th>' for head, kind in zip(heads, classes, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, classes, strict=True)) + "</tr>\n"
        for row in rows
    )
    name = f"<caption>{caption}</caption>" if caption else ""
    return f'<div class="scroll"><table>{name}<thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'


def long_table(heads: Sequence[str], kinds: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that shows the first rows and can unfold the others, up to a limit."""
    first = table("", heads, kinds, rows[:_SEEN_ROWS])
    if len(rows) <= _SEEN_ROWS:
        return first
    rest = table("", heads, kinds, rows[_SEEN_ROWS:MAX_ROWS])
    summary = f"<summary>{min(len(rows), MAX_ROWS) - _SEEN_ROWS:,} more</summary>"
    return f"{first}<details>{summary}{rest}{more(len(rows))}</details>"


def more(count: int) -> str:
    """Return a note about the number of omitted rows, if any."""
    return paragraph(f"And {count - MAX_ROWS:,} more.", "quiet") if count > MAX_ROWS else ""


def count(number: int, singular: str, plural: str = "") -> str:
    """Format a number with its noun.

    >>> count(1, "item"), count(2400, "query", "queries")
    ('1 item', '2,400 queries')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
