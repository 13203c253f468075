"""Partitioned plans: filters, graphs, operators and gates in two stages, compared with the reference evaluator."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.crash.harness import JOINS, SCRIPT, allow_operators, asking_script, item, verify, wait_until
from tests.integration.in_process import InProcess
from tests.unit.scaleout.planning.partitioned_workspaces import current, epoch, move_everything

import runnel
from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.engine import Engine
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.scaleout.partitioning import read_partitioning
from runnel.scaleout.planning.partition_loads import known_loads
from runnel.scaleout.stages import two_stages
from runnel.scaleout.stages.held_partitions import loaded_plans
from runnel.streaming.job import FORM
from runnel.streaming.worker.operator_work import operators

MORE = """
create feed Concerts from Wire where title contains 'concert' and volume < 9;
create feed Late from Stories where title contains 'jazz';
create feed LateEchoes from Rock as $r join last 3 days on Loud as $loud with $r[story = window.story];
create feed MoreEchoes from Wire as $w join last 3 days on Other as $echoes with $w[story = window.story];
subscribe to Concerts output log; subscribe to Late output log; subscribe to LateEchoes output log;
subscribe to MoreEchoes output log;
"""


def _open(root: Path, **settings: Any) -> Engine:
    """Open an engine on a new workspace with three partitions, unless the settings say otherwise."""
    created = runnel.connect(root)
    created.close()
    allow_operators(root)
    engine = runnel.connect(root, **({"partitions": 3} | settings))
    OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
    return engine


def _publish(engine: Engine, first: int, last: int) -> None:
    engine.publish("Wire", [item(number) for number in range(first, last) if number % 2])
    engine.publish("Other", [item(number) for number in range(first, last) if not number % 2])


@pytest.mark.parametrize("strategy", ["grouped", "spread"])
def test_two_stages_match_like_the_reference(tmp_path: Path, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # the operators are below `tests`
    operators.cache_clear()
    switch = tmp_path / "switch"
    switch.touch()
    with _open(tmp_path / "root", partition_strategy=strategy) as engine:
        engine.execute(SCRIPT + JOINS + asking_script(switch))
        divided = read_partitioning(engine.workspace.storage, current(engine).distribution or "")
        assert (len(divided.partitions), divided.strategy) == (3, strategy)
        run = InProcess(engine, slice_items=7, max_batch_items=90)
        _publish(engine, 0, 200)
        run.run()
        engine.execute(MORE)  # a delta, which is in no partition, with a reader of a distinct feed that is in one
        assert current(engine).distribution == divided.folder, "a delta leaves the partitions as they are"
        _publish(engine, 200, 300)
        run.run()
        verify(engine, 300)
        engine.execute("unsubscribe from Rock; unsubscribe from Concerts;")  # of a partition, and of the delta
        _publish(engine, 300, 350)
        run.run()
        assert max(match.item.sequence or 0 for match in engine.matches("Concerts")) <= 300
        with engine.workspace.catalog.read() as connection:
            loads = known_loads(connection, divided.folder)
            counted = [match_segment.counters for match_segment in match_segments.match_segments(connection)]
        copies = sum(entry["copies"] for entry in counted)
        assert sum(entry["items"] for entry in counted) == 350, "an item is counted once, however many copies it has"
        assert sum(load.items for load in loads) == copies > sum(entry["unmatched_copies"] for entry in counted)
        assert copies <= 3 * 350
        run.close()


def test_single_stage_worker_can_match_a_partitioned_plan(tmp_path: Path) -> None:
    with _open(tmp_path / "root") as engine:
        engine.execute(SCRIPT + JOINS)
        run = InProcess(engine, slice_items=7)
        run.in_two_stages = False
        _publish(engine, 0, 100)
        run.run()
        verify(engine, 100)
        run.close()


def test_a_budget_smaller_than_all_partitions_reloads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _open(tmp_path / "root") as engine:
        engine.execute(SCRIPT)
        loaded_plans.cache_clear()
        run = InProcess(engine, slice_items=50, max_batch_items=50, plan_bytes=1)
        _publish(engine, 0, 200)
        run.run()
        verify(engine, 200)
        counters = loaded_plans(1).counters
        assert counters.evictions > 0
        with engine.workspace.catalog.read() as connection:
            counted = [match_segment.counters for match_segment in match_segments.match_segments(connection)]
        assert sum(entry.get("plan_reloads", 0) for entry in counted) > 0
        run.close()
    loaded_plans.cache_clear()


def test_repeated_batch_uses_its_original_plan_and_partitions(tmp_path: Path) -> None:
    """The offset contains the plan version, so queries that are moved meanwhile neither lose nor repeat matches."""
    with _open(tmp_path / "root") as engine:
        engine.execute(SCRIPT)
        run = InProcess(engine, slice_items=10)
        _publish(engine, 0, 60)
        start, end = run.offset, run.reader.latestOffset(run.offset, None)
        before = current(engine)
        move_everything(engine, run.epoch)
        after = current(engine)
        assert (before.base, before.delta) == (after.base, after.delta)
        assert before.distribution != after.distribution
        run.commit(start, end, 0)
        run.commit(start, end, 0)  # a replay: committed already, changes nothing
        run.offset, run.batches = end, 1
        _publish(engine, 60, 120)
        run.run()
        with engine.workspace.catalog.read() as connection:
            used = [match_segment.plan for match_segment in match_segments.match_segments(connection)]
        assert used == [before.version, after.version]
        verify(engine, 120)
        run.close()


def test_matches_above_the_buffer_size_are_written_in_more_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_stages, "MAX_BUFFER_BYTES", 1)
    monkeypatch.setattr(two_stages, "_CHUNK_SLICES", 1)
    with _open(tmp_path / "root") as engine:
        engine.execute(SCRIPT)
        run = InProcess(engine, slice_items=20)
        _publish(engine, 0, 120)
        run.run()
        with engine.workspace.catalog.read() as connection:
            parts = match_segments.match_parts(connection, 0, 120)
        assert len(parts) > len({(part.first_sequence, part.last_sequence) for part in parts})
        verify(engine, 120)
        run.close()


class _QueryMover(threading.Thread):
    """Moves all queries to other partitions several times, while items are matched."""

    def __init__(self, engine: Engine, times: int) -> None:
        super().__init__(daemon=True)
        self._engine, self._times = engine, times
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for turn in range(self._times):
                wait_until(lambda turn=turn: len(_segments(self._engine)) > 2 * turn)  # type: ignore[misc]
                move_everything(self._engine, epoch(self._engine))
        except BaseException as error:
            self.error = error


def _segments(engine: Engine) -> list[MatchSegment]:
    with engine.workspace.catalog.read() as connection:
        return match_segments.match_segments(connection)


@pytest.mark.spark
def test_spark_matches_in_two_stages_and_lets_queries_move(tmp_path: Path, spark: Any) -> None:
    with _open(tmp_path / "root", max_batch_items=60) as engine:
        engine.execute(SCRIPT)
        with engine.workspace.catalog.write() as connection:
            before = match_segments.start_lineage(connection, FORM, reason="the queries were in one piece")
        _publish(engine, 0, 420)
        mover = _QueryMover(engine, times=2)
        mover.start()
        engine.run(once=True)
        mover.join()
        assert mover.error is None
        segments = _segments(engine)
        with engine.workspace.catalog.read() as connection:
            lineage = match_segments.current_lineage(connection)
        assert lineage is not None
        assert (lineage.id, lineage.job) == (before.id + 1, "match/1 in 3 slots")
        assert all(segment.counters["copies"] > 0 for segment in segments)
        assert len({segment.plan for segment in segments}) == 3, "the partitions changed twice under way"
        verify(engine, 420)
