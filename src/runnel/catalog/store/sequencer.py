"""The sequencer: one per root. Accepted items get consecutive numbers and times that never go back.

And the keeper of waits: when the clock is set back, what waits for a moment waits no longer than before.
"""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, Update, bindparam, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now

_c = schema.counters.c
_VALUE = select(_c.value).where(_c.name == bindparam("of"))
_WALL = "wall"
_UNNOTICED = 30_000_000
"""Steps back of the clock up to this (microseconds) are let be: clocks are corrected, and machines' clocks differ."""


def last_sequence(connection: Connection) -> int:
    """The sequence of the last accepted item; 0 if there is none."""
    return _value(connection, "sequence")


def take_sequences(connection: Connection, count: int) -> tuple[int, int]:
    """Reserve `count` sequences: gives the first one and the acceptance time, in this transaction."""
    first = last_sequence(connection) + 1
    accepted = log_time(connection)
    connection.execute(update(schema.counters).where(_c.name == "sequence").values(value=first + count - 1))
    connection.execute(update(schema.counters).where(_c.name == "clock").values(value=accepted))
    return first, accepted


def follow_clock(connection: Connection) -> int:
    """Notice that the clock was set back since the runner last looked; gives by how many microseconds.

    Times that something waits for were written by the clock as it was. They are set back by the same, so that a
    digest or a retry that was due in ten minutes is due in ten minutes, and not in an hour and ten. A runner looks
    whenever it renews its lease.
    """
    current = now(connection)
    seen = connection.execute(select(_c.value).where(_c.name == _WALL)).scalar_one_or_none()
    if seen is None:
        connection.execute(insert(schema.counters).values(name=_WALL, value=current))
        return 0
    connection.execute(update(schema.counters).where(_c.name == _WALL).values(value=current))
    back = int(seen) - current
    if back <= _UNNOTICED:
        return 0
    for waiting in _set_back(current, back):
        connection.execute(waiting)
    return back


def _set_back(current: int, back: int) -> list[Update]:
    """The statements that bring along every time to come that something waits for."""
    due, again = schema.subscriptions.c.due, schema.messages.c.not_before
    poll, renewal = schema.polls.c.due, schema.hubs.c.lease_until
    tried, given_up = schema.undecided.c.not_before, schema.undecided.c.until
    return [
        update(schema.subscriptions).where(due > current).values(due=due - back),
        update(schema.messages)
        .where(schema.messages.c.state == "open", again > current)
        .values(not_before=again - back),
        update(schema.polls).where(poll > current).values(due=poll - back),
        update(schema.hubs).where(renewal > current).values(lease_until=renewal - back),
        update(schema.undecided).where(tried > current).values(not_before=tried - back, until=given_up - back),
    ]


def log_time(connection: Connection) -> int:
    """The log's time: what an item accepted now is stamped with.

    A clock that is set back must not reorder the log: its time stands still until the clock has caught up.
    """
    return max(now(connection), _value(connection, "clock"))


def log_clock(connection: Connection) -> int:
    """When the last item was accepted: no later one is stamped before that, whatever the clocks say."""
    return _value(connection, "clock")


def workspace_number(connection: Connection) -> int:
    """A number that tells this root from others; chosen when it is first asked for, in a transaction that writes."""
    found = known_number(connection)
    if found is None:
        found = secrets.randbits(62)
        connection.execute(insert(schema.counters).values(name="root", value=found))
    return found


def known_number(connection: Connection) -> int | None:
    """The number of this workspace, if it was chosen already."""
    found = connection.execute(select(_c.value).where(_c.name == "root")).scalar_one_or_none()
    return None if found is None else int(found)


def _value(connection: Connection, name: str) -> int:
    return int(connection.execute(_VALUE, {"of": name}).scalar_one())
