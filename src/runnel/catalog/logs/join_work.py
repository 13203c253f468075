"""Counters of the work of joins, by the feed of the join.

In: the work of each batch, in the transaction that commits it, so that it counts once. Out: the totals since a join
was declared or last changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from heapq import nlargest

from sqlalchemy import Connection, delete, select

from runnel.catalog.store import counters, schema
from runnel.catalog.store.connection import chunks
from runnel.model.gate_work import GateWork

_MOST_JOINS = 1_000
"""Maximum number of joins that are counted per batch: those with the most candidates."""

_j = schema.join_work.c
_COUNTS = tuple(field.name for field in fields(GateWork))
_MARKS = {"sqlite": ["?"], "postgresql": ["%s"]}
_ADD = """insert into join_work (feed, history, began, items, passed, candidates, joined, nanoseconds)
    values ({}, {}, {}, {}, {}, {}, {}, {})
    on conflict (feed) do update set
        items = excluded.items + case when join_work.history = excluded.history
            then join_work.items else 0 end,
        passed = excluded.passed + case when join_work.history = excluded.history
            then join_work.passed else 0 end,
        candidates = excluded.candidates + case when join_work.history = excluded.history
            then join_work.candidates else 0 end,
        joined = excluded.joined + case when join_work.history = excluded.history
            then join_work.joined else 0 end,
        nanoseconds = excluded.nanoseconds + case when join_work.history = excluded.history
            then join_work.nanoseconds else 0 end,
        began = case when join_work.history = excluded.history then join_work.began else excluded.began end,
        history = excluded.history"""


@dataclass(frozen=True, slots=True)
class CountedWork:
    """The work of the join of a feed for the items after the sequence `began`. `history` identifies the join."""

    feed: int
    history: bytes
    began: int
    work: GateWork


def add_work(connection: Connection, several: Iterable[CountedWork]) -> None:
    """Add the work of a batch. If a join has changed, its counters start again."""
    counted = list(several)
    if not counted:
        return
    counters.add_to_counter(connection, counters.JOIN_ITEMS, sum(each.work.items for each in counted))
    counters.add_to_counter(connection, counters.JOIN_CANDIDATES, sum(each.work.candidates for each in counted))
    most = nlargest(_MOST_JOINS, counted, key=lambda each: (each.work.candidates, each.work.items))
    rows = sorted(
        (each.feed, each.history, each.began, *(getattr(each.work, name) for name in _COUNTS)) for each in most
    )
    connection.exec_driver_sql(_ADD.format(*_MARKS[connection.dialect.name] * 8), rows)


def work_of_joins(connection: Connection, feeds: Collection[int] | None = None) -> dict[int, CountedWork]:
    """Return the counters of these joins, or of all, by feed."""
    query = select(schema.join_work)
    if feeds is None:
        rows = list(connection.execute(query))
    else:
        rows = [row for ids in chunks(sorted(feeds)) for row in connection.execute(query.where(_j.feed.in_(ids)))]
    return {
        row.feed: CountedWork(
            row.feed, bytes(row.history), row.began, GateWork(**{name: getattr(row, name) for name in _COUNTS})
        )
        for row in rows
    }


def forget_dropped(connection: Connection) -> int:
    """Delete the counters of dropped feeds. Return their number."""
    dropped = select(schema.feeds.c.id).where(schema.feeds.c.dropped.is_not(None))
    return connection.execute(delete(schema.join_work).where(_j.feed.in_(dropped))).rowcount
