"""The delivery ledger: one row per message, and cursors.

Cursor 0 is shared by all immediate subscriptions that do not lag; a subscription has a cursor of its own while it is
behind or has a period. A message is recorded in the same transaction that moves the cursor past its range, so what
was handed over is exactly what is below the cursor and not open or dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from runnel.catalog import schema
from runnel.catalog.connection import now
from runnel.model.delivery import Message, MessageState

SHARED = 0
_c, _m = schema.cursors.c, schema.messages.c


def cursor(connection: Connection, subscription: int) -> int | None:
    """The sequence up to which a cursor has come; None if the subscription has none of its own."""
    return connection.execute(select(_c.sequence).where(_c.subscription == subscription)).scalar_one_or_none()


def cursors(connection: Connection) -> dict[int, int]:
    """All cursors."""
    return {row.subscription: row.sequence for row in connection.execute(select(schema.cursors))}


def set_cursor(connection: Connection, subscription: int, sequence: int) -> None:
    """Move a cursor, or make it."""
    moved = connection.execute(
        update(schema.cursors).where(_c.subscription == subscription).values(sequence=sequence)
    )
    if moved.rowcount == 0:
        connection.execute(insert(schema.cursors).values(subscription=subscription, sequence=sequence))


def drop_cursor(connection: Connection, subscription: int) -> None:
    """Let a subscription that has caught up share the common cursor again."""
    connection.execute(delete(schema.cursors).where(_c.subscription == subscription))


def next_number(connection: Connection, subscription: int) -> int:
    """The number of a subscription's next message."""
    query = select(func.max(_m.number)).where(_m.subscription == subscription)
    return int(connection.execute(query).scalar() or 0) + 1


def record_messages(connection: Connection, messages: Iterable[Message]) -> None:
    """Write open messages into the ledger."""
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
            "created": now(connection),
        }
        for message in messages
    ]
    if rows:
        connection.execute(insert(schema.messages), rows)


def settle(connection: Connection, message: Message, state: MessageState, outcome: str) -> None:
    """Say how an attempt ended; an open message is tried again."""
    connection.execute(
        update(schema.messages)
        .where(_m.subscription == message.subscription, _m.number == message.number)
        .values(
            state=state.value,
            outcome=outcome,
            attempts=_m.attempts + 1,
            finished=None if state is MessageState.OPEN else now(connection),
        )
    )


def open_messages(connection: Connection) -> list[Message]:
    """Messages on their way, in the order in which each subscription gets them."""
    query = select(schema.messages).where(_m.state == MessageState.OPEN.value).order_by(_m.subscription, _m.number)
    return [_message(row) for row in connection.execute(query)]


def has_open(connection: Connection, subscription: int) -> bool:
    """Whether a subscription has messages that are still on their way."""
    query = select(_m.number).where(_m.subscription == subscription, _m.state == MessageState.OPEN.value)
    return connection.execute(query.limit(1)).first() is not None


def messages_of(connection: Connection, subscription: int) -> list[Message]:
    """All messages of a subscription, in order."""
    query = select(schema.messages).where(_m.subscription == subscription).order_by(_m.number)
    return [_message(row) for row in connection.execute(query)]


def message_counts(connection: Connection) -> dict[str, int]:
    """How many messages are open, done and dead."""
    query = select(_m.state, func.count()).group_by(_m.state)
    return {str(state): int(count) for state, count in connection.execute(query)}


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
    )
