"""The clauses of `register feed`. In: clauses in the order in which they were written. Out: the statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from runnel.errors import Span, StatementSyntaxError
from runnel.language.syntax.statements import Name, RegisterFeed

LONGEST_TITLE = 500
"""The most characters of a feed's title, and of the address of its home page."""


@dataclass(frozen=True, slots=True)
class FeedClause:
    """One clause: the word that begins it, and what follows."""

    word: str
    value: timedelta | str | int | tuple[str, ...]
    span: Span


def register_feed(name: Name, address: str | None, place: Span, clauses: Sequence[FeedClause]) -> RegisterFeed:
    """Build the statement from its clauses; each may be written once.

    >>> register_feed(Name("Wire"), None, Span(1, 1, 2), [FeedClause("tagged", ("news",), Span(1, 1, 2))]).tags
    ('news',)
    """
    given: dict[str, Any] = {}
    for clause in clauses:
        if clause.word in given:
            raise StatementSyntaxError(
                f"{clause.word} is given twice", span=clause.span, hint="each clause may be written once: remove one"
            )
        if clause.word == "every" and address is None:
            raise StatementSyntaxError(
                "only a feed with an address is polled",
                span=clause.span,
                hint="leave `every` out: items come when they are published",
            )
        if clause.word == "open" and address is not None:
            raise StatementSyntaxError(
                "a feed with an address cannot be open",
                span=clause.span,
                hint="register a feed without an address for what others publish, and read the union of both",
            )
        if isinstance(clause.value, str) and len(clause.value) > LONGEST_TITLE:
            raise StatementSyntaxError(
                f"{clause.word} may have at most {LONGEST_TITLE:,} characters, this one has {len(clause.value):,}",
                span=clause.span,
                hint="shorten it",
            )
        given[clause.word] = clause.value
    return RegisterFeed(
        name,
        address,
        given.get("every"),
        place,
        given.get("title"),
        given.get("home"),
        given.get("tagged", ()),
        given.get("open"),
    )
