"""Undecided items: those that wait for a retry, and those that were logged again for one.

In: the undecided items of a batch, recorded in the transaction that commits it. Out: items that are due, to be logged
again in a transaction that removes them here, and the queries for which a repeated item is matched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, func, insert, or_, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.undecided import Supplement, Undecided

FIRST_WAIT = 10_000_000
"""Microseconds until the first retry. The delay doubles each time."""

MAX_WAIT = 3_600_000_000
_u, _s = schema.undecided.c, schema.supplements.c


def postpone(connection: Connection, undecided: Iterable[Undecided]) -> None:
    """Schedule a retry of items, with a delay that grows with the number of attempts."""
    moment = now(connection)
    rows = [
        {
            "sequence": item.sequence,
            "queries": json.dumps(item.queries),
            "reason": item.reason[:2000],
            "attempts": item.attempts,
            "not_before": moment + min(FIRST_WAIT << min(item.attempts - 1, 20), MAX_WAIT),
            "until": item.until,
        }
        for item in undecided
    ]
    if rows:
        connection.execute(insert(schema.undecided), rows)


def due_undecided(connection: Connection, limit: int) -> list[Undecided]:
    """Return the items that are due, longest due first."""
    moment = now(connection)
    # A delay longer than the maximum was recorded by a clock that has been set back since.
    its_time = or_(_u.not_before <= moment, _u.not_before > moment + MAX_WAIT)
    due = select(schema.undecided).where(its_time).order_by(_u.not_before, _u.id).limit(limit)
    return [
        Undecided(row.sequence, tuple(json.loads(row.queries)), row.reason, row.attempts, row.until, row.id)
        for row in connection.execute(due)
    ]


def undecided_count(connection: Connection) -> int:
    """Count the items that wait for a retry."""
    return int(connection.execute(select(func.count()).select_from(schema.undecided)).scalar_one())


def stray_undecided(connection: Connection, after: int, upto: int) -> int:
    """Count the waiting items that are not in (after, upto], the range of the log."""
    astray = or_(_u.sequence <= after, _u.sequence > upto)
    return int(connection.execute(select(func.count()).select_from(schema.undecided).where(astray)).scalar_one())


def still_undecided(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Return which of these items are still waiting."""
    results = (connection.execute(select(_u.id).where(_u.id.in_(chunk))).scalars() for chunk in chunks(list(ids)))
    return {number for numbers in results for number in numbers}


def supplement(connection: Connection, taken: Iterable[tuple[Undecided, int]]) -> None:
    """Record that items were logged again under these sequences. They no longer wait."""
    pairs = list(taken)
    rows = [
        {
            "sequence": sequence,
            "supplements": item.sequence,
            "queries": json.dumps(item.queries),
            "attempts": item.attempts,
            "until": item.until,
        }
        for item, sequence in pairs
    ]
    if rows:
        connection.execute(insert(schema.supplements), rows)
    for chunk in chunks([item.id for item, _ in pairs]):
        connection.execute(delete(schema.undecided).where(_u.id.in_(chunk)))


def forget_undecided(connection: Connection, ids: Sequence[int]) -> None:
    """Delete waiting items that were deleted from the log."""
    for chunk in chunks(list(ids)):
        connection.execute(delete(schema.undecided).where(_u.id.in_(chunk)))


def supplements_between(connection: Connection, after: int, upto: int) -> list[Supplement]:
    """Return the items in (after, upto] that were logged again."""
    query = select(schema.supplements).where(_s.sequence > after, _s.sequence <= upto).order_by(_s.sequence)
    return [
        Supplement(row.sequence, row.supplements, tuple(json.loads(row.queries)), row.attempts, row.until)
        for row in connection.execute(query)
    ]


def later_sequences(connection: Connection, sequence: int) -> list[int]:
    """Return the sequences under which an item was logged again, in order."""
    sequences: list[int] = []
    last = [sequence]
    while last:
        last = list(connection.execute(select(_s.sequence).where(_s.supplements.in_(last))).scalars())
        sequences += last
    return sorted(sequences)


def waits_for(connection: Connection, sequences: Sequence[int], query: int) -> str | None:
    """Return why a query is still undecided for an item, identified by its sequences, or None."""
    waiting = select(_u.queries, _u.reason).where(_u.sequence.in_(sequences))
    return next((row.reason for row in connection.execute(waiting) if query in json.loads(row.queries)), None)


def forget_supplements(connection: Connection, upto: int) -> int:
    """Delete records of items that were deleted. Return their number."""
    return connection.execute(delete(schema.supplements).where(_s.sequence <= upto)).rowcount
