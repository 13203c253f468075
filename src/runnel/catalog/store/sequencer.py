"""The sequencer: accepted items get consecutive numbers and times that never go back.

It also adjusts the times for which something waits when the clock is set back, so that no wait becomes longer.
"""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, Update, bindparam, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now

_c = schema.counters.c
_VALUE = select(_c.value).where(_c.name == bindparam("of"))
_WALL = "wall"
_TOLERANCE = 30_000_000
"""Steps back of the clock up to this (microseconds) are ignored: clocks are corrected, and clocks of
machines differ.
"""


def last_sequence(connection: Connection) -> int:
    """Return the sequence of the last accepted item, or 0."""
    return _value(connection, "sequence")


def take_sequences(connection: Connection, count: int) -> tuple[int, int]:
    """Reserve `count` sequences in this transaction. Return the first one and the acceptance time."""
    first = last_sequence(connection) + 1
    accepted = log_time(connection)
    connection.execute(update(schema.counters).where(_c.name == "sequence").values(value=first + count - 1))
    connection.execute(update(schema.counters).where(_c.name == "clock").values(value=accepted))
    return first, accepted


def follow_clock(connection: Connection) -> int:
    """Detect that the clock was set back since the runner's last check. Return by how many microseconds.

    Due times were computed with the earlier clock. They are moved back by the same amount, so that
    a digest or retry that was due in ten minutes is still due in ten minutes, and not in an hour and ten. A runner
    checks whenever it renews its lease.
    """
    current = now(connection)
    last = connection.execute(select(_c.value).where(_c.name == _WALL)).scalar_one_or_none()
    if last is None:
        connection.execute(insert(schema.counters).values(name=_WALL, value=current))
        return 0
    connection.execute(update(schema.counters).where(_c.name == _WALL).values(value=current))
    back = int(last) - current
    if back <= _TOLERANCE:
        return 0
    for waiting in _set_back(current, back):
        connection.execute(waiting)
    return back


def _set_back(current: int, back: int) -> list[Update]:
    """Return the updates that move every due time after `current` back by `back` microseconds."""
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
    """Return the log's time, which an item accepted now gets.

    A clock that is set back must not reorder the log: the log's time stands still until the clock has caught up.
    """
    return max(now(connection), _value(connection, "clock"))


def log_clock(connection: Connection) -> int:
    """Return when the last item was accepted. No later item gets an earlier time, even if the clock is set back."""
    return _value(connection, "clock")


def workspace_number(connection: Connection) -> int:
    """Return a number that identifies this workspace. It is chosen at the first call, in a write transaction."""
    number = known_number(connection)
    if number is None:
        number = secrets.randbits(62)
        connection.execute(insert(schema.counters).values(name="root", value=number))
    return number


def known_number(connection: Connection) -> int | None:
    """Return the number of this workspace, or None if it was not chosen yet."""
    value = connection.execute(select(_c.value).where(_c.name == "root")).scalar_one_or_none()
    return None if value is None else int(value)


def _value(connection: Connection, name: str) -> int:
    return int(connection.execute(_VALUE, {"of": name}).scalar_one())
