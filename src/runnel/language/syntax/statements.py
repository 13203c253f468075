"""Statements as parsed: names are still names, and every name knows its place in the text.

Spans never take part in comparison, so that parse(print_statement(statement)) == statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.gate_rules import GateRule
from runnel.errors import Span
from runnel.model.operator import ErrorPolicy, Parameter

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


@dataclass(frozen=True, slots=True)
class AllTerm:
    """`all feeds [tagged tag, …]`: the source feeds that the owner may read and that have all of these tags."""

    tags: tuple[str, ...] = ()
    variable: Name | None = None
    span: Span = field(default=NOWHERE, compare=False)


Term = FeedTerm | AllTerm | GroupTerm


def each_term(source: Term) -> Iterator[Term]:
    """All terms of a `from` clause from left to right, each group before its members."""
    waiting = [source]
    while waiting:
        term = waiting.pop()
        yield term
        if isinstance(term, GroupTerm):
            waiting.extend(reversed(term.terms))


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct of a `where`: on the term that a variable names, or (without one) on the whole `from`."""

    variable: Name | None
    expression: Expression


@dataclass(frozen=True, slots=True)
class JoinClause:
    """`join last … on … with $v[…]`: `extent` is the length of the window, or its number of items.

    The variable names the part of `from` whose items are joined, and the condition may have window atoms.
    """

    extent: timedelta | int
    window: Term
    variable: Name
    condition: Expression
    span: Span = field(default=NOWHERE, compare=False)
    """Where the clause begins."""


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query: its `from`, its joins, the gate after them, and the conjuncts of its `where`."""

    source: Term
    conditions: tuple[Condition, ...] = ()
    gate: GateRule | None = None
    joins: tuple[JoinClause, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterFeed:
    """`register feed 'address' as Name [every …] [title …] [home …] [tagged …] [open …]`.

    Without an address items come by `publish` only. The tags ascend, each is there once.
    """

    name: Name
    address: str | None = None
    every: timedelta | None = None
    place: Span = field(default=NOWHERE, compare=False)
    """Where the address stands."""
    title: str | None = None
    home: str | None = None
    tags: tuple[str, ...] = ()
    open_items: int | None = None
    """Items per minute that anybody may publish without a token; 0 stands for the setting, None for a closed feed."""


@dataclass(frozen=True, slots=True)
class TagFeed:
    """`tag feed Name as tag, …` and `untag feed Name`: a source feed has these tags from now on, and no others."""

    name: Name
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MaterialiseFeed:
    """`register feed Origin apply 'sheet' as Name`: a source feed whose items a stylesheet makes from another's."""

    name: Name
    origin: Name
    sheet: str
    place: Span = field(default=NOWHERE, compare=False)
    """Where the stylesheet is named."""


@dataclass(frozen=True, slots=True)
class CreateFeed:
    """`create [or replace] feed Name [tagged tag, …] from … where …`; the tags ascend, each is there once."""

    name: Name
    query: QueryText
    replace: bool = False
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterOperator:
    """`register operator Name [(parameters)] from 'source' …`; what is None was not said.

    `calls` and `seconds` are what it may use in a minute. The configuration ascends by its keys.
    """

    name: Name
    source: str
    parameters: tuple[Parameter, ...] | None = None
    release: str | None = None
    cost: timedelta | None = None
    pure: bool | None = None
    reads: tuple[str, ...] | None = None
    batch: int | None = None
    time_limit: timedelta | None = None
    concurrency: int | None = None
    calls: int | None = None
    seconds: float | None = None
    on_error: ErrorPolicy | None = None
    retry_for: timedelta | None = None
    configuration: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    place: Span = field(default=NOWHERE, compare=False)
    """Where the source is named."""


@dataclass(frozen=True, slots=True)
class RegisterPrefix:
    """`register prefix ex as 'http://…'`: what the name stands for in graph patterns that are written from now on."""

    name: Name
    iri: str


@dataclass(frozen=True, slots=True)
class SubscribeSpans:
    """Where the parts of a `subscribe` stand, so that a refusal points at what is wrong."""

    kind: Span = NOWHERE
    target: Span = NOWHERE
    sheet: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Subscribe:
    """`subscribe to Feed [apply 'sheet'] output kind ['target'] [every …] [for …] [from last …]`."""

    feed: Name
    kind: str
    target: str | None = None
    every: timedelta | None = None
    lifetime: timedelta | None = None
    back: timedelta | None = None
    sheet: str | None = None
    places: SubscribeSpans = field(default=SubscribeSpans(), compare=False)


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """`unsubscribe 12`, `unsubscribe ticket '…'`, or `unsubscribe from Feed [output kind ['target']]`."""

    number: int | None = None
    feed: Name | None = None
    kind: str | None = None
    target: str | None = None
    ticket: str | None = field(default=None, repr=False)
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Renew:
    """`renew subscription 12 [for …]`, or `renew ticket '…' [for …]`."""

    number: int | None = None
    ticket: str | None = field(default=None, repr=False)
    lifetime: timedelta | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class RotateKey:
    """`rotate key of subscription 12`."""

    subscription: int
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """`replay message 'key'`, or `replay subscription 12`: dead letters are sent again."""

    message: str | None = None
    subscription: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class SendNow:
    """`send subscription 12 now`, or `send all now`: messages that wait for another attempt are sent at once."""

    subscription: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Confirm:
    """`confirm subscription 12 'code'`, or without the code by the admin: its target agreed to get messages."""

    subscription: int
    code: str | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """`drop feed Name [cascade]`."""

    name: Name
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropOperator:
    """`drop operator Name [cascade]`."""

    name: Name
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class DropPrefix:
    """`drop prefix ex`."""

    name: Name


@dataclass(frozen=True, slots=True)
class Pause:
    """`pause` or `resume`, a feed or a subscription by its number."""

    paused: bool
    feed: Name | None = None
    subscription: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Show:
    """`show feeds`, `subscriptions`, `quarantine`, `dead letters`, `operators`, `prefixes`; `show feed Name`, …"""

    what: Literal["feeds", "subscriptions", "quarantine", "dead letters", "operators", "prefixes", "feed", "operator"]
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """`explain feed Name`."""

    name: Name


@dataclass(frozen=True, slots=True)
class ExplainMessage:
    """`explain message 'key'`."""

    message: str
    span: Span = field(default=NOWHERE, compare=False)


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


Declaration = (
    RegisterFeed
    | TagFeed
    | MaterialiseFeed
    | RegisterOperator
    | RegisterPrefix
    | CreateFeed
    | Subscribe
    | Unsubscribe
    | Renew
    | RotateKey
    | Replay
    | SendNow
    | Confirm
    | Drop
    | DropOperator
    | DropPrefix
    | Pause
)
Question = Show | Explain | ExplainMessage | Why | Preview
Statement = Declaration | Question


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement and where it begins in its script."""

    statement: Statement
    span: Span
