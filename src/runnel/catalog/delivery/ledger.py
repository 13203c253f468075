"""The delivery ledger: one row per message, and cursors.

All immediate subscriptions that do not lag share cursor 0. A subscription has its own cursor while it lags or if it
has a period. A message is recorded in the transaction that moves the cursor past its range, so everything below the
cursor was delivered unless it is open or dead.

A message may be tried once `not_before` has passed. No message of a subscription has an earlier `not_before` than an
open message before it. So one index finds the messages that are due, and their order is preserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)

from runnel.catalog.access.consents import is_unconfirmed
from runnel.catalog.store import counters, schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.message import Message, MessageState

SHARED = 0
_c, _m, _s, _a = schema.cursors.c, schema.messages.c, schema.subscriptions.c, schema.attempts.c
# A literal, not a parameter: databases do not use a partial index if its condition is compared with a parameter.
_OPEN = _m.state == literal_column("'open'")
_ABLE = (_s.paused == 0) & _s.disabled.is_(None) & ~is_unconfirmed()
_LONGEST_OUTCOME = 2_000


@dataclass(frozen=True, slots=True)
class DueMessage:
    """A message that may be tried now, and its target. `place` is the position after which the next page starts."""

    subscription: int
    number: int
    not_before: int
    kind: str
    target: str | None
    sheet: str | None
    ended: bool

    @property
    def place(self) -> tuple[int, int, int]:
        """The position among the due messages."""
        return self.not_before, self.subscription, self.number


@dataclass(frozen=True, slots=True)
class SettledAttempt:
    """The result of an attempt. `not_before` applies to a retry. `tried` is False if nothing was sent."""

    message: Message
    state: MessageState
    outcome: str
    not_before: int = 0
    tried: bool = True


# --- cursors -------------------------------------------------------------------------------------------------------


def cursor(connection: Connection, subscription: int) -> int | None:
    """Return the sequence of a cursor, or None if the subscription does not have its own."""
    return connection.execute(select(_c.sequence).where(_c.subscription == subscription)).scalar_one_or_none()


def set_cursor(connection: Connection, subscription: int, sequence: int) -> None:
    """Move or create a cursor."""
    moved = connection.execute(
        update(schema.cursors).where(_c.subscription == subscription).values(sequence=sequence)
    )
    if moved.rowcount == 0:
        connection.execute(insert(schema.cursors).values(subscription=subscription, sequence=sequence))


def move_cursors(connection: Connection, sequences: Mapping[int, int]) -> None:
    """Move the existing cursors of subscriptions."""
    if sequences:
        connection.execute(
            update(schema.cursors).where(_c.subscription == bindparam("of")).values(sequence=bindparam("to")),
            [{"of": subscription, "to": sequence} for subscription, sequence in sequences.items()],
        )


def drop_cursor(connection: Connection, subscription: int) -> None:
    """Delete the cursor of a subscription that has caught up, so that it shares the common cursor."""
    connection.execute(delete(schema.cursors).where(_c.subscription == subscription))


# --- recording -----------------------------------------------------------------------------------------------------


def next_number(connection: Connection, subscription: int) -> int:
    """Return the number of a subscription's next message."""
    query = select(func.max(_m.number)).where(_m.subscription == subscription)
    return int(connection.execute(query).scalar() or 0) + 1


def next_places(connection: Connection, subscriptions: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return, per subscription, the number of its next message and the time before which it may not be tried."""
    number = select(func.max(_m.number)).where(_m.subscription == _s.id).scalar_subquery()
    wait = select(func.max(_m.not_before)).where(_m.subscription == _s.id, _OPEN).scalar_subquery()
    query = select(_s.id, number.label("number"), wait.label("wait"))
    return {
        row.id: ((row.number or 0) + 1, row.wait or 0)
        for chunk in chunks(subscriptions)
        for row in connection.execute(query.where(_s.id.in_(chunk))).all()
    }


def record_messages(connection: Connection, messages: Iterable[Message]) -> None:
    """Write open messages to the ledger."""
    moment = now(connection)
    rows = [
        {
            "subscription": message.subscription,
            "number": message.number,
            "first_sequence": message.first_sequence,
            "last_sequence": message.last_sequence,
            "items": message.count,
            "key": message.key,
            "digest": message.digest,
            "plan": message.plan,
            "state": MessageState.OPEN.value,
            "attempts": 0,
            "created": moment,
            "not_before": max(message.not_before, moment),
        }
        for message in messages
    ]
    if rows:
        connection.execute(insert(schema.messages), rows)
        counters.add_to_counter(connection, counters.MESSAGES, len(rows))


# --- due messages ---------------------------------------------------------------------------------------------------


def due_page(
    connection: Connection, *, after: tuple[int, int, int] | None = None, since: int = 0, limit: int = 2_000
) -> list[DueMessage]:
    """Return a page of the messages that may be tried now, of subscriptions that are served, oldest first.

    `after` is the position of the last message of the previous page. `since` omits messages that were due before a
    time.
    """
    query = (
        select(_m.subscription, _m.number, _m.not_before, _s.kind, _s.target, _s.sheet, _s.ended)
        .join(schema.subscriptions, _s.id == _m.subscription)
        .where(_OPEN, _m.not_before <= now(connection), _ABLE | _s.ended.is_not(None))
        .order_by(_m.not_before, _m.subscription, _m.number)
        .limit(limit)
    )
    if after is not None:
        query = query.where(tuple_(_m.not_before, _m.subscription, _m.number) > tuple_(*after))
    elif since:
        query = query.where(_m.not_before >= since)
    return [DueMessage(*row[:6], ended=row[6] is not None) for row in connection.execute(query).all()]


def first_open(connection: Connection, subscriptions: Sequence[int], each: int) -> dict[int, list[Message]]:
    """Return the first open messages of subscriptions, in order, at most `each`, up to the first that must wait."""
    moment = now(connection)
    inner = schema.messages.alias()
    # Limit by message number, not by count, so that a long backlog is not read completely for its first messages.
    first = (
        select(func.min(inner.c.number))
        .where(inner.c.subscription == _s.id, inner.c.state == literal_column("'open'"))
        .scalar_subquery()
    )
    heads = select(_s.id, first.label("first"))
    by_subscription: dict[int, list[Message]] = {}
    for chunk in chunks(subscriptions):
        head = heads.where(_s.id.in_(chunk)).subquery()
        query = (
            select(schema.messages)
            .join(
                head,
                (_m.subscription == head.c.id)
                & (_m.number >= head.c.first)
                & (_m.number < head.c.first + literal_column(str(int(each)))),
            )
            .where(_OPEN)
            .order_by(_m.subscription, _m.number)
        )
        waiting: set[int] = set()
        for row in connection.execute(query).all():
            if row.not_before > moment:
                waiting.add(row.subscription)
            elif row.subscription not in waiting:
                by_subscription.setdefault(row.subscription, []).append(_message(row))
    return by_subscription


def has_open(connection: Connection, subscription: int) -> bool:
    """Return whether a subscription has open messages."""
    query = select(_m.number).where(_m.subscription == subscription, _OPEN)
    return connection.execute(query.limit(1)).first() is not None


# --- settling ------------------------------------------------------------------------------------------------------


def settle_all(connection: Connection, outcomes: Sequence[SettledAttempt]) -> None:
    """Record the results of many attempts in one transaction. Failed attempts get a row each."""
    moment = now(connection)
    rows = [
        {
            "of": attempt.message.subscription,
            "nr": attempt.message.number,
            "to": attempt.state.value,
            "said": attempt.outcome[:_LONGEST_OUTCOME],
            "count": int(attempt.tried),
            "end": None if attempt.state is MessageState.OPEN else moment,
            "wait": attempt.not_before,
            "at": moment,
        }
        for attempt in outcomes
    ]
    if not rows:
        return
    connection.execute(_SETTLE, rows)
    failed = [
        row
        for row, attempt in zip(rows, outcomes, strict=True)
        if attempt.tried and attempt.state is not MessageState.DONE
    ]
    if failed:
        connection.execute(_REMEMBER, failed)
    later = [row for row, attempt in zip(rows, outcomes, strict=True) if attempt.state is MessageState.OPEN]
    if later:
        connection.execute(_HOLD_BACK, later)


_SETTLE = (
    update(schema.messages)
    .where(_m.subscription == bindparam("of"), _m.number == bindparam("nr"), _OPEN)
    .values(
        state=bindparam("to"),
        outcome=bindparam("said"),
        attempts=_m.attempts + bindparam("count"),
        finished=bindparam("end"),
        not_before=bindparam("wait"),
    )
)
# Continue the numbering of attempts, so that a replayed message keeps its history.
_REMEMBER = insert(schema.attempts).from_select(
    ["subscription", "number", "attempt", "at", "outcome"],
    select(
        cast(bindparam("of"), BigInteger),
        cast(bindparam("nr"), BigInteger),
        func.coalesce(func.max(_a.attempt), 0) + 1,
        cast(bindparam("at"), BigInteger),
        cast(bindparam("said"), Text),
    ).where(_a.subscription == bindparam("of"), _a.number == bindparam("nr")),
)
_HOLD_BACK = (
    update(schema.messages)
    .where(
        _m.subscription == bindparam("of"),
        _m.number > bindparam("nr"),
        _OPEN,
        _m.not_before < bindparam("wait"),
    )
    .values(not_before=bindparam("wait"))
)


def bury(connection: Connection, subscriptions: Sequence[int], reason: str) -> None:
    """Turn all open messages of subscriptions into dead letters without trying them."""
    for chunk in chunks(subscriptions):
        connection.execute(
            update(schema.messages)
            .where(_m.subscription.in_(chunk), _OPEN)
            .values(state=MessageState.DEAD.value, outcome=reason[:_LONGEST_OUTCOME], finished=now(connection))
        )


def gave_up_before(connection: Connection, message: Message, count: int, *, attempts: int = 1) -> bool:
    """Return whether the `count` messages before this one also became dead letters after at least `attempts`
    attempts.

    Messages from before the subscription was resumed do not count.
    """
    query = (
        select(_m.state, _m.attempts, _m.finished, _s.resumed)
        .join(schema.subscriptions, _s.id == _m.subscription)
        .where(_m.subscription == message.subscription, _m.number < message.number)
        .order_by(_m.number.desc())
        .limit(count)
    )
    rows = connection.execute(query).all()
    return len(rows) == count and all(
        row.state == MessageState.DEAD.value and row.attempts >= attempts and row.finished > (row.resumed or 0)
        for row in rows
    )


def send_now(connection: Connection, subscriptions: Sequence[int]) -> int:
    """Make messages that wait for another attempt due now. Return their number.

    Their attempts are counted from 0 again, as for a replayed dead letter, so that a message at the end of its
    schedule is not given up because it was tried too early.
    """
    moment, count = now(connection), 0
    for chunk in chunks(subscriptions):
        waiting = update(schema.messages).where(_m.subscription.in_(chunk), _OPEN, _m.not_before > moment)
        count += connection.execute(waiting.values(not_before=moment, attempts=0)).rowcount
    return count


def bury_unkept(connection: Connection, upto: int) -> None:
    """Turn open messages up to a sequence into dead letters, because their items were deleted.

    Only messages of subscriptions to which nothing is sent can be that old.
    """
    held_subscriptions = select(_s.id).where(_s.disabled.is_not(None) | is_unconfirmed())
    connection.execute(
        update(schema.messages)
        .where(_OPEN, _m.first_sequence <= upto, _m.subscription.in_(held_subscriptions))
        .values(
            state=MessageState.DEAD.value,
            outcome="not sent: the items were deleted while the subscription was disabled or unconfirmed",
            finished=now(connection),
        )
    )


def sent_to(connection: Connection, owner: int, kind: str, recipient: str, *, since: int, limit: int) -> list[int]:
    """Return when the newest messages of an owner to a recipient were accepted since a time, at most
    `limit` of them.
    """
    consent = schema.consents.c
    served = (
        select(_s.id)
        .join(
            schema.consents, (consent.owner == _s.owner) & (consent.kind == _s.kind) & (consent.target == _s.target)
        )
        .where(_s.owner == owner, consent.kind == kind, consent.recipient == recipient)
    )
    query = (
        select(_m.finished)
        .where(_m.subscription.in_(served), _m.state == MessageState.DONE.value, _m.finished > since)
        .order_by(_m.finished.desc())
        .limit(limit)
    )
    return [int(row.finished) for row in connection.execute(query)]


# --- looking -------------------------------------------------------------------------------------------------------


def messages_of(connection: Connection, subscription: int) -> list[Message]:
    """Return all messages of a subscription, in order."""
    query = select(schema.messages).where(_m.subscription == subscription).order_by(_m.number)
    return [_message(row) for row in connection.execute(query)]


def _message(row: Any) -> Message:
    return Message(
        subscription=row.subscription,
        number=row.number,
        first_sequence=row.first_sequence,
        last_sequence=row.last_sequence,
        count=row.items,
        key=row.key,
        digest=row.digest,
        state=MessageState(row.state),
        attempts=row.attempts,
        outcome=row.outcome,
        plan=row.plan,
        not_before=row.not_before,
    )
