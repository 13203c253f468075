"""Counters of joins, on every supported database: added per batch, restarted with the join, and bounded."""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection

from runnel.catalog.logs.join_work import BatchWork, CountedWork, add_work, work_of_joins
from runnel.catalog.store import counters
from runnel.catalog.store.connection import Catalog
from runnel.model.gate_work import GateWork, GateWorkColumns

FIRST, SECOND = b"first", b"second"
WORK = GateWork(items=5, passed=2, candidates=7, joined=3, nanoseconds=900)


def add(catalog: Catalog, *several: CountedWork) -> None:
    with catalog.write() as connection:
        total = GateWork(
            items=sum(each.work.items for each in several), candidates=sum(each.work.candidates for each in several)
        )
        add_work(connection, BatchWork(total, several))


def totals(connection: Connection) -> tuple[int, int]:
    return (
        counters.read_counter(connection, counters.JOIN_ITEMS),
        counters.read_counter(connection, counters.JOIN_CANDIDATES),
    )


def test_work_adds_up_until_the_join_changes(catalog: Catalog) -> None:
    add(catalog)
    add(catalog, CountedWork(7, FIRST, 10, WORK), CountedWork(8, FIRST, 10, WORK))
    add(catalog, CountedWork(7, FIRST, 20, WORK))
    with catalog.read() as connection:
        known = work_of_joins(connection)
        assert totals(connection) == (15, 21)
    assert known[7] == CountedWork(7, FIRST, 10, GateWork(10, 4, 14, 6, 1800))
    assert known[8] == CountedWork(8, FIRST, 10, WORK)
    add(catalog, CountedWork(7, SECOND, 30, WORK))
    with catalog.read() as connection:
        assert work_of_joins(connection, [7, 9]) == {7: CountedWork(7, SECOND, 30, WORK)}


def test_gates_with_the_most_candidates_are_counted_and_the_totals_count_all() -> None:
    counts = np.zeros((5, 6), dtype=np.int64)
    counts[0, 1:] = 1
    counts[2] = [9, 1, 2, 0, 1, 2]
    work = GateWorkColumns(counts)
    assert [position for position, _ in work.busiest(2)] == [2, 5], "no item reached gate 0"
    assert [position for position, _ in work.busiest(10)] == [2, 5, 1, 4, 3]
    assert work.total() == GateWork(items=5, candidates=15)
