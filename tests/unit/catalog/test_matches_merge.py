"""Rows of match segments: merged where nobody needs them apart, and counted rather than summed up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text

from runnel.catalog.delivery import ledger
from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases, schema
from runnel.catalog.store.connection import Catalog, now
from runnel.errors import LineageConflictError
from runnel.model.segment import MatchPart
from runnel.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def catalog(tmp_path: Path, clock: FakeClock) -> Iterator[Catalog]:
    made = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}", clock=clock)
    made.migrate()
    with made.write() as connection:
        leases.acquire(connection, 1e9)
    yield made
    made.close()


@settings(deadline=None, max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.booleans(), st.booleans(), st.integers(-30, 900)), min_size=1, max_size=20
    ),
    st.integers(2, 7),
)
def test_merged_rows_keep_the_plan_of_each_item_and_the_last_batch(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, bool, bool, int]], limit: int
) -> None:
    clock = FakeClock()
    catalog = Catalog(f"sqlite:///{tmp_path_factory.mktemp('catalog') / 'c.sqlite'}", clock=clock)
    catalog.migrate()
    plan = lineage = 1
    expected: dict[int, int] = {}
    last = 0
    with catalog.write() as connection:
        epoch = leases.acquire(connection, 1e9).epoch
    for number, (items, new_plan, new_lineage, minutes) in enumerate(batches):
        plan, lineage = plan + new_plan, lineage + new_lineage
        segment = MatchSegment(lineage, number, last + 1, last + items, plan, items, 2 * items, {"checks": items})
        last += items
        with catalog.write() as connection:
            assert match_segments.commit_segment(connection, segment, [], epoch=epoch)
            match_segments.merge_segments(connection, now(connection) - 60_000_000, limit)
            assert not match_segments.commit_segment(connection, segment, [], epoch=epoch), "Spark may run it again"
            with pytest.raises(LineageConflictError):
                match_segments.commit_segment(connection, MatchSegment(lineage, 99, 1, 1, 1, 1, 1), [], epoch=epoch)
        expected |= dict.fromkeys(range(segment.first_sequence, segment.last_sequence + 1), plan)
        clock.advance(timedelta(minutes=minutes))
    with catalog.write() as connection:
        while match_segments.merge_segments(connection, now(connection) + 10**12, limit):
            pass
        rows = match_segments.match_segments(connection)
        assert {n: match_segments.plan_of_sequence(connection, n) for n in expected} == expected
        assert match_segments.plan_of_sequence(connection, last + 1) is None
        assert (match_segments.matched_upto(connection), match_segments.last_batch(connection, lineage)) == (
            last,
            len(batches) - 1,
        )
        assert match_segments.match_count(connection) == sum(row.matches for row in rows) == 2 * last
        assert sum(row.counters["checks"] for row in rows) == sum(row.items for row in rows) == last
    assert [row.first_sequence for row in rows][1:] == [row.last_sequence + 1 for row in rows][:-1]
    catalog.close()


def test_merging_does_not_read_the_same_rows_again(catalog: Catalog, clock: FakeClock) -> None:
    with catalog.write() as connection:
        for number in range(1, 101):
            segment = MatchSegment(1, number, number, number, 1, 1, 0)
            match_segments.commit_segment(connection, segment, [], epoch=1)
        assert match_segments.merge_segments(connection, now(connection) + 1, 50) == 49
        assert match_segments.merge_segments(connection, now(connection) + 1, 50) == 49, "one of them was made before"
        assert match_segments.merge_segments(connection, now(connection) + 1, 50) == 0
        assert [(row.first_sequence, row.batch) for row in match_segments.match_segments(connection)] == [
            (1, 99),
            (100, 100),
        ]


def test_queries_with_digests_pauses_lags_or_output_log_are_read_by_query(catalog: Catalog) -> None:
    with catalog.write() as connection:
        plain = {"kind": "rss", "since": 0, "paused": 0, "created": 0, "period": None, "ended": None}
        connection.execute(
            insert(schema.subscriptions),
            [
                plain | {"feed": 1},
                plain | {"feed": 2, "period": 5},
                plain | {"feed": 3, "paused": 1},
                plain | {"feed": 4, "kind": "log"},
                plain | {"feed": 5},
                plain | {"feed": 6, "period": 5, "ended": 1},
            ],
        )
        ledger.set_cursor(connection, 5, 0)
        assert match_segments.read_queries(connection, {"log"}) == {2, 3, 4, 5}
        assert match_segments.read_queries(connection) == {2, 3, 5}


def test_queries_on_match_segments_use_indexes(catalog: Catalog) -> None:
    with catalog.write() as connection:
        for number in range(1, 40):
            part = MatchPart(f"p{number}", number, number, 1)
            match_segments.commit_segment(
                connection, MatchSegment(1, number, number, number, 1, 1, 1), [part], epoch=1
            )
        questions = [
            "select max(last_sequence) from match_segments",
            "select plan from match_segments where last_sequence >= 7 order by last_sequence limit 1",
            "select * from match_parts where retired is null and last_sequence > 7 and first_sequence <= 9"
            " order by last_sequence limit 64",
            "select * from match_parts where retired is null and level < 3 order by last_sequence limit 9",
            "select path from match_parts where retired <= 5 limit 9",
            "select * from item_segments where retired is null and last_sequence > 7 and first_sequence <= 9"
            " order by last_sequence limit 64",
            "select last_sequence from item_segments where last_accepted < 5 order by last_accepted desc,"
            " last_sequence desc limit 1",
            "select path from item_segments where retired <= 5 limit 9",
            "select feed, key from seen where day < 5 limit 9",
            "select path from quarantine where path is not null and bytes is null order by id limit 9",
        ]
        for question in questions:
            plan = " ".join(row.detail for row in connection.execute(text(f"explain query plan {question}")))
            assert "SCAN" not in plan or "USING" in plan, f"{question}: {plan}"
            assert "SEARCH" in plan or "INDEX" in plan, f"{question}: {plan}"
