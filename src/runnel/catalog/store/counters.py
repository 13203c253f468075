"""Totals that are updated when they change, so that reading them never sums up a growing table.

In: changes, in the transaction that causes them. Out: the total, with one row lookup.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select, update

from runnel.catalog.store import schema

MATCHES = "matches"
"""All matches ever recorded."""
MESSAGES = "messages"
"""All messages ever recorded, in any state."""
DEAD_MESSAGES = "messages_dead"
"""The dead letters among the messages that exist only in receipts."""
RETAINED = "retained"
"""The last sequence that was deleted, or 0."""
MERGED = "merged"
"""The last sequence up to which rows of match segments have been merged."""
QUARANTINED = "aside"
"""The number of quarantine entries."""
QUARANTINED_BYTES = "aside_bytes"
"""The measured size of the quarantined content in bytes."""
OPERATOR_CALLS = "operator_calls"
"""Calls of operators that were answered, by an operator or from the cache."""
OPERATOR_UNKNOWN = "operator_unknown"
"""How often a query was left undecided for an item because an operator failed."""
JOIN_ITEMS = "join_items"
"""How often an item reached a join."""
JOIN_CANDIDATES = "join_candidates"
"""The window items with which joins compared items."""
CHORES = "chores"
"""When rare maintenance tasks last ran (microseconds since 1970)."""
WINDOW_CHANGES = "window_changes"
"""How often a declaration changed the set of past items that a window contains."""

TOTALS = (
    *(MATCHES, MESSAGES, DEAD_MESSAGES, RETAINED, MERGED, QUARANTINED, QUARANTINED_BYTES),
    *(OPERATOR_CALLS, OPERATOR_UNKNOWN, JOIN_ITEMS, JOIN_CANDIDATES, CHORES, WINDOW_CHANGES),
)
"""All totals. Every catalog has a row for each."""

_c = schema.counters.c
_TOTAL = select(_c.value).where(_c.name == bindparam("which"))
_COUNT = update(schema.counters).where(_c.name == bindparam("which")).values(value=_c.value + bindparam("by"))


def read_counter(connection: Connection, name: str) -> int:
    """Return a total."""
    return int(connection.execute(_TOTAL, {"which": name}).scalar_one())


def add_to_counter(connection: Connection, name: str, by: int) -> None:
    """Add to a total."""
    if by:
        connection.execute(_COUNT, {"which": name, "by": by})


def set_counter(connection: Connection, name: str, value: int) -> None:
    """Set a total."""
    connection.execute(update(schema.counters).where(_c.name == name).values(value=value))
