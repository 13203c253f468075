"""Stored states of gates: the values that a gate remembers from batch to batch, by key.

States are read before a batch is committed, and written in the transaction that commits it, so they always agree with
the match log.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, func, select

from runnel.catalog.logs import match_segments
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks
from runnel.catalog.store.sequencer import log_clock
from runnel.model.gate_state import GateState

_s, _i = schema.gate_states.c, schema.item_segments.c
_MARKS = {"sqlite": ["?"], "postgresql": ["%s"]}
_STORE = """insert into gate_states (key, feed, value, expires) values ({}, {}, {}, {})
    on conflict (key) do update set value = excluded.value, expires = excluded.expires"""


def read_states(connection: Connection, keys: Collection[bytes]) -> dict[bytes, GateState]:
    """Return the states that are stored under these keys. A key depends on its feed, so feeds do not share keys."""
    query = select(schema.gate_states)
    rows = (row for chunk in chunks(sorted(keys)) for row in connection.execute(query.where(_s.key.in_(chunk))))
    return {bytes(row.key): GateState(row.feed, bytes(row.key), bytes(row.value), row.expires) for row in rows}


def store_states(connection: Connection, states: Sequence[GateState]) -> None:
    """Store states. They replace states with the same keys."""
    if not states:
        return
    # A batch may have a hundred thousand states while other writers wait, so the rows are passed to the database
    # driver directly, in the order of the table's primary key.
    rows = sorted((state.key, state.feed, state.value, state.expires) for state in states)
    connection.exec_driver_sql(_STORE.format(*_MARKS[connection.dialect.name] * 4), rows)


def matched_time(connection: Connection) -> int:
    """Return a time in the log such that no item that still waits for matching was accepted before it."""
    waiting = select(func.min(_i.accepted)).where(
        _i.retired.is_(None), _i.last_sequence > match_segments.matched_upto(connection)
    )
    earliest = connection.execute(waiting).scalar()
    # Use the time of the log, not of this machine: the clock of another machine may be slow or may be set back.
    return log_clock(connection) if earliest is None else min(int(earliest), log_clock(connection))


def forget_states(connection: Connection, limit: int) -> int:
    """Delete at most `limit` states that are expired or belong to dropped feeds. Return their number.

    A state is expired if all items that still wait for matching were accepted after it expires.
    """
    before = matched_time(connection)
    dropped = select(schema.feeds.c.id).where(schema.feeds.c.dropped.is_not(None))
    deleted = 0
    for condition in (_s.expires <= before, _s.feed.in_(dropped)):
        keys = connection.execute(select(_s.key).where(condition).limit(limit - deleted)).scalars().all()
        for chunk in chunks(keys):
            connection.execute(delete(schema.gate_states).where(_s.key.in_(chunk)))
        deleted += len(keys)
        if deleted >= limit:
            break
    return deleted


def count_states(connection: Connection, feed: int) -> int:
    """Return the number of stored states of a feed."""
    query = select(func.count()).select_from(schema.gate_states).where(_s.feed == feed)
    return int(connection.execute(query).scalar_one())
