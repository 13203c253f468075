"""Statements as parsed: names are not yet resolved, and each one has its span in the text.

Comparisons ignore spans, so that parsing the canonical text of a statement yields an equal statement.
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
from runnel.model.table import ChangeForm, Column, ColumnType, TableSchema

NO_SPAN = Span(1, 1, 2)
"""The span of statements that were not parsed from a text: its first character."""


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a feed, operator or prefix, or of a variable without its `$`; and its span."""

    text: str
    span: Span = field(default=NO_SPAN, compare=False)


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
    span: Span = field(default=NO_SPAN, compare=False)


Term = FeedTerm | AllTerm | GroupTerm


def each_term(source: Term) -> Iterator[Term]:
    """Yield all terms of a `from` clause from left to right, each group before its members."""
    waiting = [source]
    while waiting:
        term = waiting.pop()
        yield term
        if isinstance(term, GroupTerm):
            waiting.extend(reversed(term.terms))


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct of a `where`. It filters the term that `variable` names, or the whole `from` if that is None."""

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
    span: Span = field(default=NO_SPAN, compare=False)
    """Where the clause begins."""


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query: its `from`, the conjuncts of its `where`, its gate such as `distinct`, and its joins."""

    source: Term
    conditions: tuple[Condition, ...] = ()
    gate: GateRule | None = None
    joins: tuple[JoinClause, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterFeed:
    """`register feed 'address' as Name [every …] [title …] [home …] [tagged …] [open …]`.

    A feed without an address receives only published items. Tags are sorted and unique.
    """

    name: Name
    address: str | None = None
    every: timedelta | None = None
    address_span: Span = field(default=NO_SPAN, compare=False)
    title: str | None = None
    home: str | None = None
    tags: tuple[str, ...] = ()
    open_items: int | None = None
    """Items per minute that anyone may publish without a token. 0 means the default setting, None a closed feed."""


@dataclass(frozen=True, slots=True)
class TagFeed:
    """`tag feed Name as tag, …` and `untag feed Name`: replace all tags of a source feed by these."""

    name: Name
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MaterializeFeed:
    """`register feed Origin apply 'sheet' as Name`: a source feed of Origin's items, transformed by a stylesheet."""

    name: Name
    origin: Name
    sheet: str
    sheet_span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class CreateFeed:
    """`create [or replace] feed Name [tagged tag, …] from … where …`. Tags are sorted and unique."""

    name: Name
    query: QueryText
    replace: bool = False
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisterOperator:
    """`register operator Name [(parameters)] from 'source' …`. Options that the statement omits are None.

    `calls` and `seconds` are the budget per minute. The configuration is sorted by key.
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
    source_span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class RegisterPrefix:
    """`register prefix ex as 'http://…'`: the IRI prefix that the name abbreviates in later graph patterns."""

    name: Name
    iri: str


@dataclass(frozen=True, slots=True)
class ColumnClause:
    """A column of a table: `NAME text|number|date|boolean [key]`."""

    name: Name
    type: ColumnType
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class RegisterTable:
    """`register table Name (column type [key], …) [as rows|debezium] [keep …] [ordered by column]`."""

    name: Name
    columns: tuple[ColumnClause, ...]
    form: ChangeForm = ChangeForm.ROWS
    keep: timedelta | None = None
    ordered_by: Name | None = None

    @property
    def schema(self) -> TableSchema:
        """The schema that the statement declares."""
        columns = tuple(Column(column.name.text, column.type, column.is_key) for column in self.columns)
        return TableSchema(columns, self.form, self.keep, None if self.ordered_by is None else self.ordered_by.text)


@dataclass(frozen=True, slots=True)
class SubscribeSpans:
    """The spans of the parts of a `subscribe`, for error messages."""

    kind: Span = NO_SPAN
    target: Span = NO_SPAN
    sheet: Span = NO_SPAN


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
    spans: SubscribeSpans = field(default=SubscribeSpans(), compare=False)


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """`unsubscribe 12`, `unsubscribe ticket '…'`, or `unsubscribe from Feed [output kind ['target']]`."""

    number: int | None = None
    feed: Name | None = None
    kind: str | None = None
    target: str | None = None
    ticket: str | None = field(default=None, repr=False)
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Renew:
    """`renew subscription 12 [for …]`, or `renew ticket '…' [for …]`."""

    number: int | None = None
    ticket: str | None = field(default=None, repr=False)
    lifetime: timedelta | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class RotateKey:
    """`rotate key of subscription 12`."""

    subscription: int
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """`replay message 'key'`, or `replay subscription 12`: send dead letters again."""

    message: str | None = None
    subscription: int | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class SendNow:
    """`send subscription 12 now`, or `send all now`: send messages now that wait for another attempt."""

    subscription: int | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Confirm:
    """`confirm subscription 12 ['code']`: the target agreed to receive messages. The admin needs no code."""

    subscription: int
    code: str | None = None
    span: Span = field(default=NO_SPAN, compare=False)


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
class DropTable:
    """`drop table Name`."""

    name: Name


@dataclass(frozen=True, slots=True)
class Pause:
    """`pause feed Name`, `pause subscription 12`, or the same with `resume`."""

    paused: bool
    feed: Name | None = None
    subscription: int | None = None
    span: Span = field(default=NO_SPAN, compare=False)


@dataclass(frozen=True, slots=True)
class Show:
    """`show feeds`, `tables`, `subscriptions`, `quarantine`, `dead letters`, …; `show feed Name`, …"""

    what: Literal[
        "feeds",
        "tables",
        "subscriptions",
        "quarantine",
        "dead letters",
        "operators",
        "prefixes",
        "feed",
        "operator",
    ]
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowRows:
    """`show rows Table [where …]`."""

    table: Name
    condition: Expression | None = None
    span: Span = field(default=NO_SPAN, compare=False)
    """Where the condition begins."""


@dataclass(frozen=True, slots=True)
class Explain:
    """`explain feed Name`."""

    name: Name


@dataclass(frozen=True, slots=True)
class ExplainMessage:
    """`explain message 'key'`."""

    message: str
    span: Span = field(default=NO_SPAN, compare=False)


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
    | MaterializeFeed
    | RegisterOperator
    | RegisterPrefix
    | RegisterTable
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
    | DropTable
    | Pause
)
Question = Show | ShowRows | Explain | ExplainMessage | Why | Preview
Statement = Declaration | Question


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement and the span of its first keyword."""

    statement: Statement
    span: Span
