"""What operators could not decide: items that wait for another try, and items that are in the log for one.

In: what a batch left undecided, noted in the transaction that commits it. Out: what is due, to be logged once more in
a transaction that takes it from here; and, for the batch that matches it then, for which queries alone it counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, delete, func, insert, or_, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.undecided import Supplement, Undecided

FIRST_WAIT = 10_000_000
"""Microseconds until the second try; each wait is twice as long as the one before."""

LONGEST_WAIT = 3_600_000_000
_u, _s = schema.undecided.c, schema.supplements.c


def put_off(connection: Connection, undecided: Iterable[Undecided]) -> None:
    """Have items tried once more, the later the more often they were tried already."""
    moment = now(connection)
    rows = [
        {
            "sequence": one.sequence,
            "queries": json.dumps(one.queries),
            "reason": one.reason[:2000],
            "attempts": one.attempts,
            "not_before": moment + min(FIRST_WAIT << min(one.attempts - 1, 20), LONGEST_WAIT),
            "until": one.until,
        }
        for one in undecided
    ]
    if rows:
        connection.execute(insert(schema.undecided), rows)


def due_undecided(connection: Connection, limit: int) -> list[Undecided]:
    """The items whose time has come, longest due first."""
    moment = now(connection)
    # What waits longer than anything may was noted by a clock that has been set back since.
    its_time = or_(_u.not_before <= moment, _u.not_before > moment + LONGEST_WAIT)
    due = select(schema.undecided).where(its_time).order_by(_u.not_before, _u.id).limit(limit)
    return [
        Undecided(row.sequence, tuple(json.loads(row.queries)), row.reason, row.attempts, row.until, row.id)
        for row in connection.execute(due)
    ]


def undecided_count(connection: Connection) -> int:
    """How many items wait for another try."""
    return int(connection.execute(select(func.count()).select_from(schema.undecided)).scalar_one())


def stray_undecided(connection: Connection, after: int, upto: int) -> int:
    """How many wait whose item is not in (after, upto], what the log holds."""
    astray = or_(_u.sequence <= after, _u.sequence > upto)
    return int(connection.execute(select(func.count()).select_from(schema.undecided).where(astray)).scalar_one())


def still_undecided(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Which of these nobody has taken yet."""
    found = (connection.execute(select(_u.id).where(_u.id.in_(some))).scalars() for some in chunks(list(ids)))
    return {one for some in found for one in some}


def supplement(connection: Connection, taken: Iterable[tuple[Undecided, int]]) -> None:
    """Note that items are in the log once more, under these sequences; they are undecided no longer."""
    pairs = list(taken)
    rows = [
        {
            "sequence": sequence,
            "supplements": one.sequence,
            "queries": json.dumps(one.queries),
            "attempts": one.attempts,
            "until": one.until,
        }
        for one, sequence in pairs
    ]
    if rows:
        connection.execute(insert(schema.supplements), rows)
    for some in chunks([one.id for one, _ in pairs]):
        connection.execute(delete(schema.undecided).where(_u.id.in_(some)))


def forget_undecided(connection: Connection, ids: Sequence[int]) -> None:
    """Let go of items that are kept no longer."""
    for some in chunks(list(ids)):
        connection.execute(delete(schema.undecided).where(_u.id.in_(some)))


def supplements_between(connection: Connection, after: int, upto: int) -> list[Supplement]:
    """The items in (after, upto] that are there once more."""
    found = select(schema.supplements).where(_s.sequence > after, _s.sequence <= upto).order_by(_s.sequence)
    return [
        Supplement(row.sequence, row.supplements, tuple(json.loads(row.queries)), row.attempts, row.until)
        for row in connection.execute(found)
    ]


def later_sequences(connection: Connection, sequence: int) -> list[int]:
    """The sequences under which an item is in the log again, in order."""
    found: list[int] = []
    last = [sequence]
    while last:
        last = list(connection.execute(select(_s.sequence).where(_s.supplements.in_(last))).scalars())
        found += last
    return sorted(found)


def waits_for(connection: Connection, sequences: Sequence[int], query: int) -> str | None:
    """Why a query is still undecided for an item, known by its sequences; None if it is not."""
    waiting = select(_u.queries, _u.reason).where(_u.sequence.in_(sequences))
    return next((row.reason for row in connection.execute(waiting) if query in json.loads(row.queries)), None)


def forget_supplements(connection: Connection, upto: int) -> int:
    """Forget about items that are kept no longer; gives their number."""
    return connection.execute(delete(schema.supplements).where(_s.sequence <= upto)).rowcount
