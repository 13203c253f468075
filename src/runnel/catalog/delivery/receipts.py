"""Receipts: totals of old messages, one row per subscription, that replace their rows in the ledger.

In: messages that were settled long ago. Out: totals, so that counts stay right and no message number is reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update

from runnel.catalog.access.consents import is_unconfirmed
from runnel.catalog.logs import match_segments
from runnel.catalog.store import counters, schema
from runnel.catalog.store.connection import chunks
from runnel.model.message import MessageState

_SHARED = 0
_c, _m, _r = schema.cursors.c, schema.messages.c, schema.receipts.c
_a, _s = schema.attempts.c, schema.subscriptions.c


@dataclass(frozen=True, slots=True)
class Receipt:
    """Totals of the settled messages of one subscription that no longer have their own rows."""

    subscription: int
    number: int
    done: int
    dead: int
    items: int
    attempts: int
    first_created: int
    last_finished: int


def receipt_of(connection: Connection, subscription: int) -> Receipt | None:
    """Return the receipt of a subscription."""
    row = connection.execute(select(schema.receipts).where(_r.subscription == subscription)).one_or_none()
    return None if row is None else Receipt(*row)


def message_counts(connection: Connection) -> dict[str, int]:
    """Count the open, delivered and dead messages of all time. States without messages are omitted."""
    every = counters.read_counter(connection, counters.MESSAGES)
    still_open = _count(connection, MessageState.OPEN)
    dead = _count(connection, MessageState.DEAD) + counters.read_counter(connection, counters.DEAD_MESSAGES)
    counts = {"open": still_open, "done": every - still_open - dead, "dead": dead}
    return {state: number for state, number in counts.items() if number}


def _count(connection: Connection, state: MessageState) -> int:
    query = select(func.count()).select_from(schema.messages).where(_m.state == state.value)
    return int(connection.execute(query).scalar_one())


def fold_messages(connection: Connection, before: int, limit: int) -> int:
    """Fold up to `limit` messages that were settled before a time into receipts. Return their number.

    The newest message of a live subscription stays, because it determines the number of the next one.
    """
    newest = (
        select(func.max(_m.number))
        .where(_m.subscription == _s.id, _s.ended.is_(None))
        .correlate(schema.subscriptions)
    )
    query = (
        select(schema.messages)
        .join(schema.subscriptions, _s.id == _m.subscription, isouter=True)
        .where(_m.finished < before, _m.number != func.coalesce(newest.scalar_subquery(), 0))
        .order_by(_m.finished)
        .limit(limit)
    )
    rows = connection.execute(query).all()
    by_subscription: dict[int, list[Any]] = {}
    for row in rows:
        by_subscription.setdefault(row.subscription, []).append(row)
    for subscription, messages in by_subscription.items():
        _add(connection, subscription, messages)
        for numbers in chunks([row.number for row in messages]):
            connection.execute(delete(schema.messages).where(_m.subscription == subscription, _m.number.in_(numbers)))
            connection.execute(delete(schema.attempts).where(_a.subscription == subscription, _a.number.in_(numbers)))
    dead = sum(row.state == MessageState.DEAD.value for row in rows)
    counters.add_to_counter(connection, counters.DEAD_MESSAGES, dead)
    return len(rows)


def _add(connection: Connection, subscription: int, rows: Sequence[Any]) -> None:
    """Add messages to the receipt of their subscription."""
    before = receipt_of(connection, subscription)
    dead = sum(row.state == MessageState.DEAD.value for row in rows)
    old = before or Receipt(subscription, 0, 0, 0, 0, 0, min(row.created for row in rows), 0)
    values = {
        "number": max(old.number, *(row.number for row in rows)),
        "done": old.done + len(rows) - dead,
        "dead": old.dead + dead,
        "items": old.items + sum(row.items for row in rows),
        "attempts": old.attempts + sum(row.attempts for row in rows),
        "first_created": min(old.first_created, *(row.created for row in rows)),
        "last_finished": max(old.last_finished, *(row.finished for row in rows)),
    }
    if before is None:
        connection.execute(insert(schema.receipts).values(subscription=subscription, **values))
    else:
        connection.execute(update(schema.receipts).where(_r.subscription == subscription).values(**values))


def needed_after(connection: Connection) -> int:
    """Return the sequence after which delivery or a repeated batch still needs items and matches."""
    last_start = match_segments.last_segment_start(connection)
    is_held = _s.disabled.is_not(None) | is_unconfirmed()
    is_of_held = exists().where(_s.id == _m.subscription, is_held, _s.ended.is_(None))
    first_open = connection.execute(
        select(func.min(_m.first_sequence)).where(_m.state == MessageState.OPEN.value, ~is_of_held)
    ).scalar()
    shared = connection.execute(select(_c.sequence).where(_c.subscription == _SHARED)).scalar_one_or_none()
    live = exists().where(_s.id == _c.subscription, _s.ended.is_(None), ~is_held)
    lowest = connection.execute(select(func.min(_c.sequence)).where(live)).scalar()
    lacks_cursor = ~exists().where(_c.subscription == _s.id)
    collecting = connection.execute(
        select(func.min(_s.since)).where(_s.ended.is_(None), ~is_held, _s.period.is_not(None), lacks_cursor)
    ).scalar()
    needs = [
        (last_start or 1) - 1,
        shared or 0,
        *(sequence for sequence in (lowest, collecting) if sequence is not None),
        *([first_open - 1] if first_open is not None else []),
    ]
    return int(min(needs))


def lift_cursors(connection: Connection, upto: int) -> None:
    """Move the cursors of subscriptions to which nothing is sent up to the oldest kept items."""
    is_of_held = exists().where(_s.id == _c.subscription, _s.disabled.is_not(None) | is_unconfirmed())
    connection.execute(update(schema.cursors).where(_c.sequence < upto, is_of_held).values(sequence=upto))
