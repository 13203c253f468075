"""Dead letters: messages that were given up, what happened to them, and sending them again.

In: the ledger. Out: lists and stories for a person, and open messages again. A letter that is sent again keeps its
key, so that an endpoint that had it after all knows it; the history of its attempts stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, literal_column, select, update

from runnel.catalog.access.consents import is_unconfirmed
from runnel.catalog.declared import feeds
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.delivery.match_reader import MatchReader, MessageRange
from runnel.errors import NotFoundError, RunnelError
from runnel.model.message import MessageState
from runnel.sinks.files.valid_texts import xml_text

_m, _s, _a, _f = schema.messages.c, schema.subscriptions.c, schema.attempts.c, schema.feeds.c
_DEAD = _m.state == literal_column("'dead'")
_TITLES = 20
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that is no longer tried, because it failed too often or its target refused it."""

    key: str
    subscription: int
    owner: int
    feed: str
    kind: str
    target: str | None
    count: int
    attempts: int
    reason: str
    given_up: datetime

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return asdict(self) | {"given_up": self.given_up.isoformat()}

    def lines(self) -> list[str]:
        """For a terminal."""
        where = f" {self.target}" if self.target else ""
        items = "1 item" if self.count == 1 else f"{self.count} items"
        when = self.given_up.isoformat(sep=" ", timespec="minutes")[:16]
        return [f"{self.key}  {when}  {self.feed} ({items}) to {self.kind}{where}: {_short(self.reason)}"]


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt that failed."""

    number: int
    at: datetime
    outcome: str


@dataclass(frozen=True, slots=True)
class DeliveryHistory:
    """All that is known about a message, and what can be done."""

    key: str
    state: str
    subscription: int
    feed: str
    kind: str
    target: str | None
    first_sequence: int
    last_sequence: int
    count: int
    outcome: str | None
    recorded: datetime
    next_try: datetime | None
    failures: tuple[FailedAttempt, ...]
    titles: tuple[str, ...]
    advice: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        told = asdict(self)
        told["recorded"] = self.recorded.isoformat()
        told["next_try"] = self.next_try.isoformat() if self.next_try else None
        told["failures"] = [
            {"attempt": one.number, "at": one.at.isoformat(), "outcome": one.outcome} for one in self.failures
        ]
        return told

    def lines(self) -> list[str]:
        """For a terminal."""
        where = f" {self.target}" if self.target else ""
        wait = f", next tried {_when(self.next_try)}" if self.next_try else ""
        more = self.count - len(self.titles)
        return [
            f"message        {self.key}",
            f"state          {self.state}{wait}",
            f"subscription   {self.subscription} to {self.feed}, {self.kind}{where}",
            f"recorded       {_when(self.recorded)}",
            f"items          {self.count}, of sequences {self.first_sequence} to {self.last_sequence}",
            *(f"               {title}" for title in self.titles),
            *([f"               and {more} more"] if self.titles and more > 0 else []),
            f"outcome        {self.outcome or 'none yet'}",
            *(f"attempt {one.number:<6} {_when(one.at)}: {one.outcome}" for one in self.failures),
            *(f"to do          {one}" for one in self.advice),
        ]


def dead_letters(
    connection: Connection, limit: int, subscription: int | None = None, *, owner: int | None = None
) -> list[DeadLetter]:
    """Messages that were given up, the last one first; all of them, or those of one subscription or one owner."""
    query = _told().where(_DEAD).order_by(_m.finished.desc(), _m.subscription, _m.number.desc()).limit(limit)
    if subscription is not None:
        query = query.where(_m.subscription == subscription)
    if owner is not None:
        query = query.where(schema.subscriptions.c.owner == owner)
    return [
        DeadLetter(
            key=row.key,
            subscription=row.subscription,
            owner=row.owner,
            feed=row.feed_name,
            kind=row.kind,
            target=row.target,
            count=row.items,
            attempts=row.attempts,
            reason=row.outcome or "",
            given_up=moment_of(row.finished),
        )
        for row in connection.execute(query)
    ]


def explain_dead_letter(connection: Connection, key: str, shares: MatchReader | None = None) -> DeliveryHistory:
    """All that is known about a message, dead or not; with the titles of its items where `shares` can find them."""
    row = connection.execute(_told().where(_m.key == key)).one_or_none()
    if row is None:
        raise NotFoundError(
            f"there is no message {key[:80]!r}", hint="`show dead letters` lists those that were given up"
        )
    tried = (
        select(schema.attempts)
        .where(_a.subscription == row.subscription, _a.number == row.number)
        .order_by(_a.attempt)
    )
    failures = [FailedAttempt(one.attempt, moment_of(one.at), one.outcome) for one in connection.execute(tried)]
    is_open = row.state == MessageState.OPEN.value
    return DeliveryHistory(
        key=row.key,
        state=row.state,
        subscription=row.subscription,
        feed=row.feed_name,
        kind=row.kind,
        target=row.target,
        first_sequence=row.first_sequence,
        last_sequence=row.last_sequence,
        count=row.items,
        outcome=row.outcome,
        recorded=moment_of(row.created),
        next_try=moment_of(row.not_before) if is_open else None,
        failures=tuple(failures),
        titles=() if shares is None else _titles(connection, shares, row),
        advice=tuple(_advice(row)),
    )


def replay(connection: Connection, which: str | int) -> int:
    """Open dead letters again: the one of a key, or all of a subscription's; gives how many.

    They are sent under their old keys. Those of a subscription that has ended cannot be sent any more.
    """
    ended = select(_s.id).where(_s.id == _m.subscription, _s.ended.is_not(None)).exists()
    wanted = _m.key == which if isinstance(which, str) else _m.subscription == which
    opened = connection.execute(
        update(schema.messages)
        .where(_DEAD, wanted, ~ended)
        .values(state=MessageState.OPEN.value, attempts=0, finished=None, not_before=now(connection))
    )
    return int(opened.rowcount)


def _told() -> Select[Any]:
    return (
        select(
            schema.messages,
            _s.owner,
            _s.kind,
            _s.target,
            _s.feed,
            _s.since,
            _s.sheet,
            _s.ended,
            _s.paused,
            _s.disabled,
            is_unconfirmed().label("unconfirmed"),
            _f.name.label("feed_name"),
        )
        .join(schema.subscriptions, _s.id == _m.subscription)
        .join(schema.feeds, _f.id == _s.feed)
    )


def _titles(connection: Connection, shares: MatchReader, row: Row[Any]) -> tuple[str, ...]:
    """The titles of the first items of a message; none where they are no longer kept."""
    try:
        live_since = feeds.since_of(connection, [row.feed])
        run = MessageRange(row.feed, row.first_sequence - 1, row.last_sequence, row.plan)
        [sequences] = shares.of_runs([run], live_since)
        wanted = [one for one in sequences or () if one > row.since][:_TITLES]
        loaded = shares.items(wanted)
    except RunnelError:
        return ()
    found = {} if loaded is None else loaded.items
    shown = ((found[one].item.first("title") or found[one].item.id) for one in wanted if one in found)
    return tuple(_short(" ".join(xml_text(str(title)).split())) for title in shown)


def _advice(row: Row[Any]) -> Sequence[str]:
    """What a person can do about a message."""
    number = row.subscription
    if row.ended is not None:
        return ["nothing: the subscription has ended"] if row.state != MessageState.DONE.value else []
    advice = []
    if row.disabled is not None:
        advice.append(f"repair the endpoint, then `resume subscription {number};` (disabled: {row.disabled})")
    elif row.unconfirmed:
        advice.append(f"{row.target} has to confirm first; `send subscription {number} now;` asks it again")
    elif row.paused:
        advice.append(f"`resume subscription {number};` lets it go on")
    elif row.state == MessageState.OPEN.value and row.attempts:
        advice.append(f"`send subscription {number} now;` tries it at once")
    if row.state == MessageState.DEAD.value:
        if row.sheet is not None:
            advice.append("if its stylesheet failed: fix it and subscribe again")
        advice.append(f"`replay message '{row.key}';` sends it again under the same key")
        advice.append(f"`replay subscription {number};` sends all dead letters of the subscription again")
    return advice


def _when(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(sep=" ", timespec="seconds")[:19] + " UTC"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
