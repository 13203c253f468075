"""Counters of joins, on every supported database: added per batch, restarted with the join, and bounded."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from runnel.catalog.logs import join_work
from runnel.catalog.logs.join_work import CountedWork, add_work, work_of_joins
from runnel.catalog.store import counters
from runnel.catalog.store.connection import Catalog
from runnel.model.gate_work import GateWork

FIRST, SECOND = b"first", b"second"
WORK = GateWork(items=5, passed=2, candidates=7, joined=3, nanoseconds=900)


def add(catalog: Catalog, *several: CountedWork) -> None:
    with catalog.write() as connection:
        add_work(connection, several)


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


def test_only_the_joins_with_the_most_candidates_are_counted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_work, "_MOST_JOINS", 2)
    add(catalog, *(CountedWork(feed, FIRST, 0, GateWork(candidates=feed % 3)) for feed in range(1, 6)))
    with catalog.read() as connection:
        assert sorted(work_of_joins(connection)) == [2, 5]
        assert totals(connection)[1] == 6, "the totals count all joins"
