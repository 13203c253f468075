"""Dead letters: list the messages that were given up, explain what happened to them, and send them again.

In: the ledger. Out: dead letters, the history of a message, and reopened messages. A dead letter that is sent again
keeps its key, so an endpoint that received it earlier can recognize it. The history of its attempts is kept.
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
from runnel.delivery.match_reader import FeedRange, MatchReader
from runnel.errors import NotFoundError, RunnelError
from runnel.model.message import MessageState
from runnel.sinks.files.valid_texts import xml_text

_m, _s, _a, _f = schema.messages.c, schema.subscriptions.c, schema.attempts.c, schema.feeds.c
_DEAD = _m.state == literal_column("'dead'")
_MAX_TITLES = 20
_MAX_TEXT_LENGTH = 100


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
        """Return a JSON value."""
        return asdict(self) | {"given_up": self.given_up.isoformat()}

    def lines(self) -> list[str]:
        """Return lines for a terminal."""
        target = f" {self.target}" if self.target else ""
        items = "1 item" if self.count == 1 else f"{self.count} items"
        when = self.given_up.isoformat(sep=" ", timespec="minutes")[:16]
        return [f"{self.key}  {when}  {self.feed} ({items}) to {self.kind}{target}: {_shorten(self.reason)}"]


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt to deliver a message."""

    number: int
    at: datetime
    outcome: str


@dataclass(frozen=True, slots=True)
class DeliveryHistory:
    """The state and history of a message, and advice for the next step."""

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
        """Return a JSON value."""
        value = asdict(self)
        value["recorded"] = self.recorded.isoformat()
        value["next_try"] = self.next_try.isoformat() if self.next_try else None
        value["failures"] = [
            {"attempt": failure.number, "at": failure.at.isoformat(), "outcome": failure.outcome}
            for failure in self.failures
        ]
        return value

    def lines(self) -> list[str]:
        """Return lines for a terminal."""
        target = f" {self.target}" if self.target else ""
        next_try = f", next attempt at {_format_time(self.next_try)}" if self.next_try else ""
        more = self.count - len(self.titles)
        return [
            f"message        {self.key}",
            f"state          {self.state}{next_try}",
            f"subscription   {self.subscription} to {self.feed}, {self.kind}{target}",
            f"recorded       {_format_time(self.recorded)}",
            f"items          {self.count}, in sequences {self.first_sequence} to {self.last_sequence}",
            *(f"               {title}" for title in self.titles),
            *([f"               and {more} more"] if self.titles and more > 0 else []),
            f"outcome        {self.outcome or 'none yet'}",
            *(f"attempt {failed.number:<6} {_format_time(failed.at)}: {failed.outcome}" for failed in self.failures),
            *(f"to do          {advice}" for advice in self.advice),
        ]


def dead_letters(
    connection: Connection, limit: int, subscription: int | None = None, *, owner: int | None = None
) -> list[DeadLetter]:
    """Return up to `limit` dead letters, newest first, optionally of one subscription or one owner."""
    order = (_m.finished.desc(), _m.subscription, _m.number.desc())
    query = _select_messages().where(_DEAD).order_by(*order).limit(limit)
    if subscription is not None:
        query = query.where(_m.subscription == subscription)
    if owner is not None:
        query = query.where(_s.owner == owner)
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


def explain_dead_letter(connection: Connection, key: str, match_reader: MatchReader | None = None) -> DeliveryHistory:
    """Return the history of a message in any state. With a `match_reader`, include the titles of its items."""
    row = connection.execute(_select_messages().where(_m.key == key)).one_or_none()
    if row is None:
        raise NotFoundError(
            f"there is no message {key[:80]!r}", hint="`show dead letters;` lists the messages that were given up"
        )
    attempts = (
        select(schema.attempts)
        .where(_a.subscription == row.subscription, _a.number == row.number)
        .order_by(_a.attempt)
    )
    failures = [
        FailedAttempt(attempt.attempt, moment_of(attempt.at), attempt.outcome)
        for attempt in connection.execute(attempts)
    ]
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
        titles=() if match_reader is None else _read_titles(connection, match_reader, row),
        advice=tuple(_advise(row)),
    )


def replay(connection: Connection, which: str | int) -> int:
    """Reopen dead letters, so that they are sent again under their old keys. Return how many were reopened.

    `which` is the key of a message, or the number of a subscription, of which all dead letters are reopened. Dead
    letters of a subscription that has ended stay dead.
    """
    ended = select(_s.id).where(_s.id == _m.subscription, _s.ended.is_not(None)).exists()
    wanted = _m.key == which if isinstance(which, str) else _m.subscription == which
    reopened = connection.execute(
        update(schema.messages)
        .where(_DEAD, wanted, ~ended)
        .values(state=MessageState.OPEN.value, attempts=0, finished=None, not_before=now(connection))
    )
    return int(reopened.rowcount)


def _select_messages() -> Select[Any]:
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


def _read_titles(connection: Connection, match_reader: MatchReader, row: Row[Any]) -> tuple[str, ...]:
    """Return the titles of the first items of a message. Return none if the items cannot be read any more."""
    try:
        live_since = feeds.since_of(connection, [row.feed])
        feed_range = FeedRange(row.feed, row.first_sequence - 1, row.last_sequence, row.plan)
        [matches] = match_reader.find_matches([feed_range], live_since)
        sequences = [sequence for sequence in matches or () if sequence > row.since][:_MAX_TITLES]
        loaded = match_reader.load_items(sequences)
    except RunnelError:
        return ()
    by_sequence = {} if loaded is None else loaded.items
    items = [by_sequence[sequence].item for sequence in sequences if sequence in by_sequence]
    return tuple(_shorten(" ".join(xml_text(str(item.first("title") or item.id)).split())) for item in items)


def _advise(row: Row[Any]) -> Sequence[str]:
    """Return what a person can do about a message, one text per step or alternative."""
    number = row.subscription
    if row.ended is not None:
        return ["nothing, because the subscription has ended"] if row.state != MessageState.DONE.value else []
    advice = []
    if row.disabled is not None:
        advice.append(f"repair the endpoint, then `resume subscription {number};` (disabled: {row.disabled})")
    elif row.unconfirmed:
        advice.append(f"{row.target} has to confirm first; `send subscription {number} now;` sends another request")
    elif row.paused:
        advice.append(f"`resume subscription {number};` sends it, because the subscription is paused")
    elif row.state == MessageState.OPEN.value and row.attempts:
        advice.append(f"`send subscription {number} now;` tries again immediately")
    if row.state == MessageState.DEAD.value:
        if row.sheet is not None:
            advice.append("if the stylesheet failed, fix it and subscribe again")
        advice.append(f"`replay message '{row.key}';` sends it again under the same key")
        advice.append(f"`replay subscription {number};` sends all dead letters of the subscription again")
    return advice


def _format_time(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat(sep=" ", timespec="seconds")[:19] + " UTC"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[: _MAX_TEXT_LENGTH - 1]}…"
