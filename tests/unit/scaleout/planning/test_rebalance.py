"""Dividing queries anew: only where one partition is hot, with the same answers, and not again and again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.unit.scaleout.planning.partitioned_workspaces import DECLARED, assert_divided_alike, current, epoch

from runnel.catalog.logs import plan_versions
from runnel.engine import Engine, connect
from runnel.errors import FencedError
from runnel.scaleout.partitioning import Assignment, read_assignment, read_partitioning
from runnel.scaleout.planning import partition_loads, partition_plan, rebalance
from runnel.scaleout.planning.partition_loads import PartitionLoad
from runnel.scaleout.planning.rebalance import expected_skew

HOUR = 3_600_000_000
"""Microseconds of processor time: so much was measured that nobody can say it was too little."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "root", partitions=4) as opened:
        opened.execute(DECLARED)
        yield opened


def measure(engine: Engine, hottest: float) -> int:
    """Note loads so that the partition which has most to do takes a multiple of what the others take."""
    row = current(engine)
    made = read_partitioning(engine.workspace.storage, row.distribution or "")
    hot = max(range(len(made.partitions)), key=lambda one: made.partitions[one].queries)
    taken = [HOUR] * len(made.partitions)
    taken[hot] = int(HOUR * hottest)
    loads = [PartitionLoad(number, 10_000_000, 1_000_000, one, 1) for number, one in enumerate(taken)]
    with engine.workspace.catalog.write() as connection:
        partition_loads.note_loads(connection, made.folder, loads)
    return hot


def known(engine: Engine, of: str | None) -> list[PartitionLoad]:
    with engine.workspace.catalog.read() as connection:
        return partition_loads.known_loads(connection, of or "")


def test_a_hot_partition_gives_queries_to_others(engine: Engine) -> None:
    held, before = epoch(engine), current(engine)
    engine.execute("create feed More from Wire where title contains 'rock'; subscribe to More output log;")
    hot = measure(engine, 30.0)
    done = rebalance.rebalance(engine.workspace, held)
    row = current(engine)
    assert done is not None
    assert done.version == row.version
    assert row.base == before.base
    assert row.delta is not None
    assert row.distribution != before.distribution
    assert 0 < done.moved <= done.queries
    assert done.then < done.before
    assert f"version {row.version}" in done.told()
    assert_divided_alike(engine, row)
    old, new = (read_assignment(engine.workspace.storage, one.distribution or "") for one in (before, row))
    assert np.array_equal(old.query_ids, new.query_ids)
    assert np.count_nonzero(new.partitions == hot) < np.count_nonzero(old.partitions == hot)
    strategies = {
        read_partitioning(engine.workspace.storage, one.distribution or "").strategy for one in (before, row)
    }
    assert len(strategies) == 1
    kept = len(set(before.pieces[1:]) & set(row.pieces[1:]))
    assert done.kept == kept
    assert not known(engine, before.distribution), "what was measured of the old one is forgotten"
    assert rebalance.rebalance(engine.workspace, held) is None, "nothing was measured of the new one yet"


def test_partitions_that_are_loaded_alike_stay(engine: Engine) -> None:
    held, before = epoch(engine), current(engine)
    assert rebalance.rebalance(engine.workspace, held) is None, "nothing was measured yet"
    measure(engine, 1.1)
    noted = known(engine, before.distribution)
    assert rebalance.rebalance(engine.workspace, held) is None
    assert current(engine) == before
    faded = known(engine, before.distribution)
    assert [one.microseconds for one in faded] == [one.microseconds // 2 for one in noted]


def test_a_plan_that_is_not_divided_is_left_alone(tmp_path: Path) -> None:
    with connect(tmp_path / "root") as engine:
        held = epoch(engine)
        assert rebalance.rebalance(engine.workspace, held) is None
        engine.execute(DECLARED)
        before = current(engine)
        assert rebalance.rebalance(engine.workspace, held) is None
        assert current(engine) == before


def test_whoever_was_faster_wins(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    held, real = epoch(engine), partition_plan.partition_queries
    measure(engine, 30.0)
    row = current(engine)

    def meanwhile(*arguments: object, **named: object) -> object:
        with engine.workspace.catalog.write() as connection:
            plan_versions.publish_plan(connection, row.base, row.delta, row.queries, row.removed)
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(rebalance, "partition_queries", meanwhile)
    done = rebalance.rebalance(engine.workspace, held)
    assert done is not None
    assert done.version is None
    assert current(engine).distribution is None


def test_nothing_is_published_without_the_lease(engine: Engine) -> None:
    held, before = epoch(engine), current(engine)
    measure(engine, 30.0)
    with pytest.raises(FencedError):
        rebalance.rebalance(engine.workspace, held - 1)
    assert current(engine) == before


def test_moving_that_does_not_help_ends(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """One query may be dear and look like all others: whatever moves, some partition is as hot as ever."""
    held, moves = epoch(engine), 0
    for _ in range(6):
        measure(engine, 30.0)
        moves += rebalance.rebalance(engine.workspace, held) is not None
    assert moves == 1 + rebalance.MOST_FUTILE_MOVES - 1
    assert sum("did not help 2 times" in one for one in caplog.messages) >= 1
    left = current(engine)
    measure(engine, 30.0)
    assert rebalance.rebalance(engine.workspace, held) is None
    assert current(engine) == left


def test_a_move_that_helped_is_followed_by_others(engine: Engine) -> None:
    held = epoch(engine)
    for hottest in (40.0, 12.0, 4.0):
        measure(engine, hottest)
        assert rebalance.rebalance(engine.workspace, held) is not None, hottest


def test_matches_are_read_only_where_partitions_are_uneven(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: object) -> None:
        raise AssertionError("nobody asked for matches")

    monkeypatch.setattr(rebalance, "match_rates", read)
    measure(engine, 1.1)
    assert rebalance.rebalance(engine.workspace, epoch(engine)) is None


def test_dividing_ends_when_the_run_is_to_end(engine: Engine) -> None:
    class Ended(Exception):
        pass

    def end() -> None:
        raise Ended

    before = current(engine)
    measure(engine, 30.0)
    with pytest.raises(Ended):
        rebalance.rebalance(engine.workspace, epoch(engine), proceed=end)
    assert current(engine) == before


def test_what_is_expected_follows_from_what_was_measured() -> None:
    ids = np.arange(1, 5)
    two = Assignment(ids, np.array([0, 0, 1, 1]), np.array([0, 1, 2, 3]), np.ones(4))
    loads = [PartitionLoad(0, 1, 1, 300, 0), PartitionLoad(1, 1, 1, 100, 0)]
    assert expected_skew(two, loads, two.partitions) == pytest.approx(1.5)
    assert expected_skew(two, loads, np.array([0, 1, 1, 1])) == pytest.approx(1.25)
    assert expected_skew(two, [PartitionLoad(one, 0, 0, 0, 0) for one in (0, 1)], two.partitions) == 1.0
