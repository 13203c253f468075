"""Answers: the results of statements. Each class renders its own text and its own JSON.

This module contains the answers to declarations, and lists. The rows of `show` are in `ask.shown`. Larger answers are
defined next to the code that creates them: `Why`, `Explanation`, `PreviewResult`, `TrialResult`, `QueryUsage`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Protocol, TypeVar

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Rendering:
    """An answer as text and as JSON: a message of one line, the JSON data, and the lines below the message."""

    message: str
    data: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(ABC):
    """The answer to a statement. `str()` returns its text, `to_json()` the value that `--json` prints.

    `notes` are warnings about the statement, for example about characters that a condition ignores.
    """

    notes: tuple[str, ...] = ()

    @abstractmethod
    def render(self) -> Rendering:
        """Return the text and the JSON of this answer, without its notes."""

    @property
    def message(self) -> str:
        """The first line of the answer: a summary."""
        return self.render().message

    @property
    def lines(self) -> tuple[str, ...]:
        """The remaining lines of the answer: details, then notes."""
        return (*self.render().lines, *(f"note: {note}" for note in self.notes))

    def to_json(self) -> dict[str, Any]:
        """Return the answer as a JSON object: its message, its data, and its notes if there are any."""
        rendering = self.render()
        notes = {"notes": list(self.notes)} if self.notes else {}
        return {"message": rendering.message, **rendering.data, **notes}

    def __str__(self) -> str:
        return "\n".join((self.message, *(f"  {line}" for line in self.lines)))


def listed(noun: str, things: Sequence[Any]) -> str:
    """List up to five things by name, and count the rest.

    >>> listed("feed", ["A"]), listed("subscription", [1, 2, 3, 4, 5, 6])
    ('feed A', 'subscriptions 1, 2, 3, 4, 5 and 1 more')
    """
    shown = ", ".join(str(thing) for thing in things[:_NAMED])
    more = f" and {len(things) - _NAMED} more" if len(things) > _NAMED else ""
    return f"{noun}{'s' if len(things) != 1 else ''} {shown}{more}"


# --- declarations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done(Answer):
    """A statement was carried out. Optional fields that do not apply are None and are omitted from the JSON.

    >>> FeedDone("paused feed Rock", feed="Rock", paused=True).to_json()
    {'message': 'paused feed Rock', 'feed': 'Rock', 'paused': True}
    """

    summary: str
    details: tuple[str, ...] = field(default=(), kw_only=True)

    def render(self) -> Rendering:
        """Render the summary and the fields that are set."""
        data: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            is_absent = value is None and entry.default is None
            if entry.name not in ("summary", "details", "notes") and not is_absent:
                data[entry.name] = value
        return Rendering(self.summary, data, self.details)


@dataclass(frozen=True, slots=True)
class FeedDone(Done):
    """A feed was registered, created, replaced, tagged, paused or resumed."""

    feed: str
    id: int | None = None
    origin: str | None = None
    sheet: str | None = None
    tags: list[str] | None = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class OperatorDone(Done):
    """An operator was registered or dropped. `feeds` are the feeds that use it, or that were dropped with it."""

    operator: str
    version: int | None = None
    signature: str | None = None
    feeds: list[str] | None = None
    subscriptions: list[int] | None = None


@dataclass(frozen=True, slots=True)
class PrefixDone(Done):
    """A prefix was registered or dropped."""

    prefix: str
    iri: str | None = None


@dataclass(frozen=True, slots=True)
class Dropped(Done):
    """Feeds were dropped, or subscriptions were ended."""

    subscriptions: list[int]
    feeds: list[str] | None = None

    def render(self) -> Rendering:
        """Render the names of the feeds and the numbers of the subscriptions."""
        feeds = {} if self.feeds is None else {"feeds": self.feeds}
        return Rendering(self.summary, {**feeds, "subscriptions": self.subscriptions})


@dataclass(frozen=True, slots=True)
class SubscriptionDone(Done):
    """A subscription was paused or resumed, or got a new signing key."""

    subscription: int
    key: str | None = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class Renewed(Done):
    """A subscription was renewed. If `expires` is None, it lasts until it is ended.

    >>> Renewed("subscription 1 lasts until it is ended", 1, None).to_json()["expires"] is None
    True
    """

    subscription: int
    expires: str | None


@dataclass(frozen=True, slots=True)
class Confirmed(Done):
    """A subscription was confirmed, or needs no confirmation."""

    subscription: int
    target: str | None


@dataclass(frozen=True, slots=True)
class Subscribed(Done):
    """A new subscription. Only this answer contains its ticket, and its signing key if messages are signed."""

    subscription: int
    feed: str
    kind: str
    target: str | None
    ticket: str
    shows_ticket: bool = False
    key: str | None = None
    is_waiting: bool = False

    def render(self) -> Rendering:
        """Render the subscription and its secrets."""
        data: dict[str, Any] = {
            "subscription": self.subscription,
            "feed": self.feed,
            "kind": self.kind,
            "target": self.target,
            "ticket": self.ticket,
        }
        lines: list[str] = []
        if self.shows_ticket:
            lines.append(f"ticket: {self.ticket}  (shown only now; it renews and ends the subscription)")
        if self.key is not None:
            data["key"] = self.key
            lines.append(f"signing key: {self.key}  (shown only now)")
        if self.is_waiting:
            data["waiting"] = "for confirmation"
            lines.append(f"waiting: {self.target} must confirm before messages are sent to it")
        return Rendering(self.summary, data, tuple(lines))


@dataclass(frozen=True, slots=True)
class MessagesDone(Done):
    """Messages were queued to be sent now or again. `disabled` are subscriptions that need a repair first."""

    messages: int
    subscription: int | None = None
    disabled: list[int] | None = None

    def render(self) -> Rendering:
        """Render the number of messages and the disabled subscriptions."""
        subscription = {} if self.subscription is None else {"subscription": self.subscription}
        disabled = {} if self.disabled is None else {"disabled": self.disabled}
        lines = (
            (f"disabled: {listed('subscription', self.disabled)}; after a repair, use `resume subscription N;`",)
            if self.disabled
            else ()
        )
        return Rendering(self.summary, {**subscription, "messages": self.messages, **disabled}, lines)


@dataclass(frozen=True, slots=True)
class OwnerDone(Done):
    """An owner was added, disabled or enabled, or a token was created or revoked.

    Only the answer to the creation of a token contains it.
    """

    token: str | None = None
    id: int | None = None
    owner: str | None = None
    label: str | None = None
    disabled: bool | None = None


@dataclass(frozen=True, slots=True)
class ImportedFeeds(Answer):
    """The result of an OPML import: the feeds that were registered, and the problems of the others."""

    registered: list[str]
    known: int
    problems: list[str]
    repairs: list[str]

    def render(self) -> Rendering:
        """Render the names, the problems and the repairs."""
        counts = f"{self.known} were already registered, {len(self.problems)} could not be used"
        return Rendering(
            f"registered {len(self.registered)} feeds, {counts}",
            {
                "registered": self.registered,
                "known": self.known,
                "problems": self.problems,
                "repairs": self.repairs,
            },
            (*self.registered, *self.problems, *self.repairs),
        )


# --- lists -------------------------------------------------------------------------------------------------------


class Row(Protocol):
    """An entry of a list."""

    def lines(self) -> Sequence[str]:
        """Return the entry as lines of text."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""


RowType = TypeVar("RowType", bound=Row, covariant=True)


@dataclass(frozen=True, slots=True)
class Listing(Answer, Generic[RowType]):
    """The answer to `show feeds` and other lists. In JSON, the rows are under `key`."""

    summary: str
    key: str
    rows: tuple[RowType, ...]

    def render(self) -> Rendering:
        """Render the lines of all rows. In the JSON object, the rows are the value of `key`."""
        lines = tuple(line for row in self.rows for line in row.lines())
        return Rendering(self.summary, {self.key: [row.to_json() for row in self.rows]}, lines)
