"""Totals: numbers that grow with the years are counted when they change, never summed up when somebody asks.

In: what was added or taken away, in the transaction that does so. Out: the total, at the cost of one row.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select, update

from runnel.catalog.store import schema

MATCHES = "matches"
"""All matches ever recorded."""
MESSAGES = "messages"
"""All messages ever recorded, whatever became of them."""
DEAD_MESSAGES = "messages_dead"
"""The dead ones among those messages that are only in receipts."""
RETAINED = "retained"
"""The last sequence that is no longer kept; 0 while everything is."""
MERGED = "merged"
"""The last sequence up to which rows of match segments have been merged."""
QUARANTINED = "aside"
"""How many things are put aside."""
QUARANTINED_BYTES = "aside_bytes"
"""The bytes kept of what is put aside, as far as they have been measured."""
OPERATOR_CALLS = "operator_calls"
"""Calls of operators that were answered, by an operator or from what was known."""
OPERATOR_UNKNOWN = "operator_unknown"
"""How often a query was left undecided for an item because an operator failed."""
CHORES = "chores"
"""When rare chores were last done (microseconds since 1970)."""

TOTALS = (
    *(MATCHES, MESSAGES, DEAD_MESSAGES, RETAINED, MERGED, QUARANTINED, QUARANTINED_BYTES),
    *(OPERATOR_CALLS, OPERATOR_UNKNOWN, CHORES),
)
"""All of them: every catalog has a row for each."""

_c = schema.counters.c
_TOTAL = select(_c.value).where(_c.name == bindparam("which"))
_COUNT = update(schema.counters).where(_c.name == bindparam("which")).values(value=_c.value + bindparam("by"))


def read_counter(connection: Connection, name: str) -> int:
    """A total."""
    return int(connection.execute(_TOTAL, {"which": name}).scalar_one())


def add_to_counter(connection: Connection, name: str, by: int) -> None:
    """Change a total by so much."""
    if by:
        connection.execute(_COUNT, {"which": name, "by": by})


def set_counter(connection: Connection, name: str, value: int) -> None:
    """Set a total."""
    connection.execute(update(schema.counters).where(_c.name == name).values(value=value))
