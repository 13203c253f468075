"""Statements as parsed: names are still names, and every name knows its place in the text.

Spans never take part in comparison, so that parse(print_statement(statement)) == statement.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from runnel.algebra.expressions import Expression
from runnel.errors import Span

NOWHERE = Span(1, 1, 2)


@dataclass(frozen=True, slots=True)
class Name:
    """A feed's name, or a variable's (without its `$`), at a place."""

    text: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class FeedTerm:
    """A feed in a `from` clause, with the variable that names it there."""

    feed: Name
    variable: Name | None = None


@dataclass(frozen=True, slots=True)
class GroupTerm:
    """A union of terms in parentheses, with the variable that names the group (RoSeS §3.1)."""

    terms: tuple[Term, ...]
    variable: Name | None = None


Term = FeedTerm | GroupTerm


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct of a `where`: on the term that a variable names, or (without one) on the whole `from`."""

    variable: Name | None
    expression: Expression


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query: `from …` and the conjuncts of its `where`."""

    source: Term
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterFeed:
    """`register feed 'address' as Name`; without an address items come by `publish` only."""

    name: Name
    address: str | None = None


@dataclass(frozen=True, slots=True)
class CreateFeed:
    """`create [or replace] feed Name from … where …`."""

    name: Name
    query: QueryText
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    """`subscribe to Feed output kind ['target'] [every …] [for …] [from last …]`."""

    feed: Name
    kind: str
    target: str | None = None
    every: timedelta | None = None
    lifetime: timedelta | None = None
    back: timedelta | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """`unsubscribe 12`, or `unsubscribe from Feed [output kind ['target']]`."""

    number: int | None = None
    feed: Name | None = None
    kind: str | None = None
    target: str | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """`drop feed Name [cascade]`."""

    name: Name
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """`pause` or `resume`, a feed or a subscription by its number."""

    paused: bool
    feed: Name | None = None
    subscription: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Show:
    """`show feeds`, `show subscriptions`, `show quarantine`, or `show feed Name`."""

    what: Literal["feeds", "subscriptions", "quarantine", "feed"]
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """`explain feed Name`."""

    name: Name


@dataclass(frozen=True, slots=True)
class Why:
    """`why item 'id' in Feed`."""

    item: str
    feed: Name


@dataclass(frozen=True, slots=True)
class Preview:
    """`preview create feed … [over last …]`, or `preview feed Name [over last …]`."""

    query: CreateFeed | None = None
    feed: Name | None = None
    back: timedelta | None = None


Declaration = RegisterFeed | CreateFeed | Subscribe | Unsubscribe | Drop | Pause
Question = Show | Explain | Why | Preview
Statement = Declaration | Question


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement and where it begins in its script."""

    statement: Statement
    span: Span
