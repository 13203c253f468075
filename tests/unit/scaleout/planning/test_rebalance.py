"""Rebalancing: only if one partition is overloaded, with the same matches, and not over and over again."""

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
    with connect(tmp_path / "workspace", partitions=4) as opened:
        opened.execute(DECLARED)
        yield opened


def measure(engine: Engine, hottest: float) -> int:
    """Record loads with which the busiest partition takes a multiple of the others' time."""
    row = current(engine)
    made = read_partitioning(engine.workspace.storage, row.distribution or "")
    hot = max(range(len(made.partitions)), key=lambda value: made.partitions[value].queries)
    taken = [HOUR] * len(made.partitions)
    taken[hot] = int(HOUR * hottest)
    loads = [PartitionLoad(number, 10_000_000, 1_000_000, value, 1) for number, value in enumerate(taken)]
    with engine.workspace.catalog.write() as connection:
        partition_loads.note_loads(connection, made.folder, loads)
    return hot


def recorded(engine: Engine, of: str | None) -> list[PartitionLoad]:
    with engine.workspace.catalog.read() as connection:
        return partition_loads.known_loads(connection, of or "")


def test_overloaded_partition_gives_queries_to_others(engine: Engine) -> None:
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
    assert f"version {row.version}" in done.describe()
    assert_divided_alike(engine, row)
    old, new = (read_assignment(engine.workspace.storage, entry.distribution or "") for entry in (before, row))
    assert np.array_equal(old.query_ids, new.query_ids)
    assert np.count_nonzero(new.partitions == hot) < np.count_nonzero(old.partitions == hot)
    strategies = {
        read_partitioning(engine.workspace.storage, entry.distribution or "").strategy for entry in (before, row)
    }
    assert len(strategies) == 1
    kept = len(set(before.pieces[1:]) & set(row.pieces[1:]))
    assert done.kept == kept
    assert not recorded(engine, before.distribution), "the loads of the old partitioning are deleted"
    assert rebalance.rebalance(engine.workspace, held) is None, "the new partitioning has no loads yet"


def test_evenly_loaded_partitions_do_not_change(engine: Engine) -> None:
    held, before = epoch(engine), current(engine)
    assert rebalance.rebalance(engine.workspace, held) is None, "nothing was measured yet"
    measure(engine, 1.1)
    noted = recorded(engine, before.distribution)
    assert rebalance.rebalance(engine.workspace, held) is None
    assert current(engine) == before
    faded = recorded(engine, before.distribution)
    assert [load.microseconds for load in faded] == [load.microseconds // 2 for load in noted]


def test_plan_without_partitions_is_not_rebalanced(tmp_path: Path) -> None:
    with connect(tmp_path / "workspace") as engine:
        held = epoch(engine)
        assert rebalance.rebalance(engine.workspace, held) is None
        engine.execute(DECLARED)
        before = current(engine)
        assert rebalance.rebalance(engine.workspace, held) is None
        assert current(engine) == before


def test_nothing_is_published_over_a_newer_version(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_rebalancing_stops_if_it_does_not_help(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """If a single query is expensive but has the same estimate as all others, moving queries never helps."""
    held, moves = epoch(engine), 0
    for _ in range(6):
        measure(engine, 30.0)
        moves += rebalance.rebalance(engine.workspace, held) is not None
    assert moves == 1 + rebalance.MAX_FUTILE_MOVES - 1
    assert sum("did not help 2 times" in message for message in caplog.messages) >= 1
    left = current(engine)
    measure(engine, 30.0)
    assert rebalance.rebalance(engine.workspace, held) is None
    assert current(engine) == left


def test_rebalancing_continues_while_it_helps(engine: Engine) -> None:
    held = epoch(engine)
    for hottest in (40.0, 12.0, 4.0):
        measure(engine, hottest)
        assert rebalance.rebalance(engine.workspace, held) is not None, hottest


def test_matches_are_read_only_if_partitions_are_uneven(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: object) -> None:
        raise AssertionError("matches are not needed")

    monkeypatch.setattr(rebalance, "match_rates", read)
    measure(engine, 1.1)
    assert rebalance.rebalance(engine.workspace, epoch(engine)) is None


def test_rebalancing_can_be_aborted(engine: Engine) -> None:
    class Ended(Exception):
        pass

    def end() -> None:
        raise Ended

    before = current(engine)
    measure(engine, 30.0)
    with pytest.raises(Ended):
        rebalance.rebalance(engine.workspace, epoch(engine), proceed=end)
    assert current(engine) == before


def test_expected_skew_is_computed_from_measured_loads() -> None:
    ids = np.arange(1, 5)
    other = Assignment(ids, np.array([0, 0, 1, 1]), np.array([0, 1, 2, 3]), np.ones(4))
    loads = [PartitionLoad(0, 1, 1, 300, 0), PartitionLoad(1, 1, 1, 100, 0)]
    assert expected_skew(other, loads, other.partitions) == pytest.approx(1.5)
    assert expected_skew(other, loads, np.array([0, 1, 1, 1])) == pytest.approx(1.25)
    assert expected_skew(other, [PartitionLoad(number, 0, 0, 0, 0) for number in (0, 1)], other.partitions) == 1.0
