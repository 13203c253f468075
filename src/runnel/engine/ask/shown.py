"""The rows that `show` returns: feeds, subscriptions, quarantined things, operators, prefixes, owners and messages.

In: values that were read from the catalog. Out: lines of text, and JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from textwrap import wrap
from typing import Any

from runnel.algebra.nodes.durations import render_duration
from runnel.delivery.dead_letters import DeliveryHistory
from runnel.engine.answers import Answer, Rendering, listed
from runnel.language.printing import render_short_time
from runnel.optimizer.describe import shortened

_WIDTH = 76


@dataclass(frozen=True, slots=True)
class Feed:
    """A declared feed. `is_matched` means that items are matched with it, because someone subscribes to it."""

    id: int
    name: str
    owner: str
    kind: str
    is_matched: bool
    is_paused: bool
    revision: int
    statement: str
    tags: tuple[str, ...]
    title: str | None = None
    home: str | None = None
    is_open: bool = False
    is_own: bool = True

    def lines(self) -> list[str]:
        """Return the statement. If the feed belongs to another owner, a comment names the owner."""
        return [self.statement if self.is_own else f"{self.statement}  -- of {self.owner}"]

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        described = {"title": self.title, "home": self.home, "open": self.is_open}
        return {
            "id": self.id,
            "name": self.name,
            "owner": self.owner,
            "kind": self.kind,
            "matched": self.is_matched,
            "paused": self.is_paused,
            "revision": self.revision,
            "statement": self.statement,
            "tags": list(self.tags),
            **(described if self.kind == "source" else {}),
        }


@dataclass(frozen=True, slots=True)
class FeedDetails(Answer):
    """The answer to `show feed`: the feeds that it reads, the feeds that read it, and its subscriptions.

    `poll` describes the polls of a web feed; its keys are the labels that are printed.
    """

    feed: Feed
    reads: tuple[str, ...]
    read_by: tuple[str, ...]
    subscriptions: tuple[int, ...]
    state: str
    poll: Mapping[str, Any] = field(default_factory=dict)

    def render(self) -> Rendering:
        """Render the feed with its neighbors and subscriptions."""
        related = {
            "reads": list(self.reads),
            "read_by": list(self.read_by),
            "subscriptions": list(self.subscriptions),
        }
        polled = {"poll": dict(self.poll)} if self.poll else {}
        lines = (
            self.feed.statement,
            f"reads: {shortened(self.reads) or '-'}",
            f"read by: {shortened(self.read_by) or '-'}",
            f"subscriptions: {', '.join(map(str, self.subscriptions)) or '-'}",
            self.state,
            *(f"{name}: {value}" for name, value in self.poll.items() if value not in (None, "")),
        )
        return Rendering(f"feed {self.feed.name}", {**self.feed.to_json(), **related, **polled}, lines)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription and its number of messages. `disabled` and `confirmation` give reasons why none is sent."""

    id: int
    feed: str
    kind: str
    target: str | None
    every: timedelta | None
    expires: datetime | None
    is_paused: bool
    disabled: str | None
    confirmation: str | None
    owner: str
    messages: int
    is_own: bool = True

    def lines(self) -> list[str]:
        """Return lines for a terminal."""
        parts = [f"{self.id:>6}", self.feed, self.kind, self.target or "-"]
        parts += [f"every {render_duration(self.every)}"] if self.every else []
        parts += [f"until {self.expires.isoformat()[:16]}"] if self.expires else []
        parts += ["paused"] if self.is_paused else []
        parts += [f"disabled: {self.disabled}"] if self.disabled else []
        parts += [self.confirmation] if self.confirmation else []
        parts += [] if self.is_own else [f"of {self.owner}"]
        return ["  ".join([*parts, f"messages: {self.messages}"])]

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return {
            "subscription": self.id,
            "feed": self.feed,
            "kind": self.kind,
            "target": self.target,
            "every_seconds": None if self.every is None else self.every.total_seconds(),
            "expires": None if self.expires is None else self.expires.isoformat(),
            "paused": self.is_paused,
            "disabled": self.disabled,
            "confirmation": self.confirmation,
            "owner": self.owner,
            "messages": self.messages,
        }


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A document, item or evaluation that failed and waits for inspection.

    `place` identifies it, for example by a file name or an item id. `kept` is the path of the file with its bytes.
    """

    id: int
    kind: str
    feed: str | None
    query: str | None
    place: str
    reason: str
    kept: str | None
    time: datetime

    def lines(self) -> list[str]:
        """Return lines for a terminal."""
        return [f"{self.kind} {self.place}: {self.reason}"]

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return {
            "id": self.id,
            "kind": self.kind,
            "feed": self.feed,
            "query": self.query,
            "place": self.place,
            "reason": self.reason,
            "kept": self.kept,
            "time": self.time.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix for graph patterns. `is_registered` is false for a built-in prefix."""

    prefix: str
    iri: str
    is_registered: bool
    statement: str

    def lines(self) -> list[str]:
        """Return the statement of a registered prefix, or a comment, so that the lines of a list form a script."""
        if self.is_registered:
            return [self.statement]
        return [f"-- {self.prefix}: <{self.iri}> is built in"]

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return {"prefix": self.prefix, "iri": self.iri, "registered": self.is_registered}


@dataclass(frozen=True, slots=True)
class LearnedCalls:
    """Figures of an operator's recent calls: seconds per call, and the fractions that failed and that were cached."""

    seconds: float
    failed: float
    known: float


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator that queries can use. `source` and `configuration` are None unless the actor is the admin."""

    name: str
    version: int
    signature: str
    cost: timedelta
    is_pure: bool
    on_error: str
    budget: tuple[str, ...]
    reads: tuple[str, ...]
    release: str
    queries: int
    learned: LearnedCalls | None = None
    source: str | None = None
    configuration: Mapping[str, str] | None = None

    def lines(self) -> list[str]:
        """Return the signature and a description, on several lines."""
        return [*wrap(self.signature, _WIDTH, subsequent_indent="    "), *self.description()]

    def description(self) -> list[str]:
        """Describe the operator, without its signature."""
        parts = [] if self.source is None else [f"from {self.source}"]
        parts += [f"release {self.release}"] if self.release else []
        parts += [
            f"cost {render_short_time(self.cost)}",
            "pure" if self.is_pure else "impure",
            f"on error {self.on_error}",
            *self.budget,
        ]
        parts += [f"reading {', '.join(self.reads)}"] if self.reads else []
        if self.learned is not None:
            duration = render_short_time(timedelta(seconds=float(f"{self.learned.seconds:.3g}")))
            fractions = f"{self.learned.failed:.0%} failed, {self.learned.known:.0%} answered from the cache"
            parts.append(f"recently {duration} per call, {fractions}")
        parts.append("1 query uses it" if self.queries == 1 else f"{self.queries:,} queries use it")
        return _indented("; ".join(parts))

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        learned = self.learned
        private = (
            {} if self.source is None else {"source": self.source, "configuration": dict(self.configuration or {})}
        )
        return {
            "name": self.name,
            "version": self.version,
            "signature": self.signature,
            "cost_seconds": self.cost.total_seconds(),
            "cost": render_short_time(self.cost),
            "pure": self.is_pure,
            "on_error": self.on_error,
            "budget": list(self.budget),
            "reads": list(self.reads),
            "release": self.release,
            **private,
            "queries": self.queries,
            "learned": None
            if learned is None
            else {"seconds": learned.seconds, "failed": learned.failed, "known": learned.known},
        }


@dataclass(frozen=True, slots=True)
class OperatorDetails(Answer):
    """The answer to `show operator`: the operator, the queries that use it, and for the admin its statement."""

    operator: Operator
    used_by: tuple[str, ...]
    statement: str | None = None

    def render(self) -> Rendering:
        """Render the operator and the names of the queries that use it."""
        statement = {} if self.statement is None else {"statement": self.statement}
        lines = (
            self.statement or self.operator.signature,
            *self.operator.description(),
            *_indented(f"used by {listed('feed', self.used_by)}" if self.used_by else "used by: -"),
        )
        data = {**self.operator.to_json(), "used_by": list(self.used_by), **statement}
        return Rendering(f"operator {self.operator.name}", data, lines)


def _indented(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")


# --- owners ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quota:
    """The number that an owner uses (`have`) and the highest number allowed (`most`), or None if unlimited."""

    have: int
    most: int | None

    def describe(self, noun: str) -> str:
        """Return the quota as text.

        >>> Quota(3, None).describe("feeds"), Quota(3, 1000).describe("feeds")
        ('3 feeds', '3 of 1,000 feeds')
        """
        return f"{self.have:,} {noun}" if self.most is None else f"{self.have:,} of {self.most:,} {noun}"


@dataclass(frozen=True, slots=True)
class Owner:
    """An owner, with the number of queries, subscriptions and bytes used and the quotas for them."""

    name: str
    id: int
    is_disabled: bool
    queries: Quota
    subscriptions: Quota
    bytes: Quota

    def lines(self) -> list[str]:
        """Return lines for a terminal."""
        counts = (
            self.queries.describe("feeds"),
            self.subscriptions.describe("subscriptions"),
            self.bytes.describe("bytes"),
        )
        return ["  ".join((self.name, *counts, *(("disabled",) if self.is_disabled else ())))]

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        quotas = {"queries": self.queries, "subscriptions": self.subscriptions, "bytes": self.bytes}
        counts = {name: {"have": quota.have, "most": quota.most} for name, quota in quotas.items()}
        return {"owner": self.name, "id": self.id, "disabled": self.is_disabled, **counts}


@dataclass(frozen=True, slots=True)
class OwnerDetails(Answer):
    """An owner whose quotas were set."""

    owner: Owner

    def render(self) -> Rendering:
        """Render the quotas and their use."""
        return Rendering(f"quotas of {self.owner.name}", self.owner.to_json(), tuple(self.owner.lines()))


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an owner. `used` is the time of its last use. The secret is not stored."""

    id: int
    owner: str
    label: str
    created: datetime
    used: datetime | None
    revoked: datetime | None

    def lines(self) -> list[str]:
        """Return lines for a terminal."""
        state = f"revoked {_minute(self.revoked)}" if self.revoked else f"used {_minute(self.used) or 'never'}"
        return [f"{self.id:>6}  {self.owner}  {self.label}  {state}"]

    def to_json(self) -> dict[str, Any]:
        """Return the value as a JSON object."""
        return {
            "id": self.id,
            "owner": self.owner,
            "label": self.label,
            "created": _minute(self.created),
            "used": _minute(self.used),
            "revoked": _minute(self.revoked),
        }


def _minute(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="minutes")[:16]


@dataclass(frozen=True, slots=True)
class MessageDetails(Answer):
    """The answer to `explain message`: the state of a message, its items, and its failed delivery attempts."""

    key: str
    history: DeliveryHistory

    def render(self) -> Rendering:
        """Render the history of the message."""
        return Rendering(f"message {self.key}", self.history.to_json(), tuple(self.history.lines()))
