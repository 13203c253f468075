"""Partitioning of plans: when the settings require it, with the same matches, and without blocking others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import text
from tests.unit.scaleout.planning.partitioned_workspaces import DECLARED, assert_divided_alike, current, epoch
from typer.testing import CliRunner

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Contains
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.catalog.learned import stream_statistics
from runnel.catalog.logs import match_segments, plan_versions
from runnel.cli.main import app
from runnel.engine import Engine, connect
from runnel.engine.ask.status import read_status
from runnel.engine.ask.vitals import read_vitals
from runnel.engine.planning import plan_change
from runnel.engine.planning.ports import WholePlanFigures
from runnel.engine.planning.reoptimize import reoptimize
from runnel.engine.run.health import Health
from runnel.engine.run.runner import Runner
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.upkeep.restore import restore
from runnel.errors import CorruptDataError, FencedError
from runnel.logs.garbage import remove_orphans
from runnel.matching.compile.compile_plan import compile_base
from runnel.model.learned.stream_statistics import StreamSample
from runnel.plan.logical_plan import PlanQuery
from runnel.scaleout.partitioning import ASSIGNMENT, MANIFEST, read_partitioning, verify_partitioning
from runnel.scaleout.planning import partition_loads, partition_plan
from runnel.scaleout.planning.partition_figures import PartitionFigures
from runnel.scaleout.planning.partition_loads import PartitionLoad
from runnel.scaleout.planning.partition_plan import ensure_partitioning
from runnel.scaleout.planning.stream_knowledge import StreamKnowledge, read_stream_knowledge
from runnel.web.metrics import render_metrics


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "workspace", partitions=3) as opened:
        opened.execute(DECLARED)
        yield opened


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "workspace") as opened:
        opened.execute(DECLARED)
        yield opened


def test_new_base_is_published_with_partitions_if_the_settings_require_it(divided: Engine) -> None:
    row = current(divided)
    assert row.distribution is not None
    made = read_partitioning(divided.workspace.storage, row.distribution)
    assert (made.base, made.pieces) == (row.base, row.pieces)
    assert len(made.partitions) == 3
    assert sum(partition.queries for partition in made.partitions) == row.queries
    assert_divided_alike(divided, row)


def test_small_changes_keep_the_partitions(divided: Engine) -> None:
    before = current(divided)
    divided.execute("create feed More from Wire where title contains 'rock'; subscribe to More output log;")
    with_delta = current(divided)
    divided.execute("drop feed AllJazz cascade;")
    fewer = current(divided)
    assert before.version < with_delta.version < fewer.version
    assert with_delta.delta is not None
    assert fewer.removed
    for row in (with_delta, fewer):
        assert (row.base, row.distribution, row.pieces) == (before.base, before.distribution, before.pieces)
        assert_divided_alike(divided, row)


def test_plan_is_not_partitioned_without_need(whole: Engine) -> None:
    assert current(whole).distribution is None
    assert ensure_partitioning(whole.workspace, epoch(whole)) is None
    assert isinstance(read_status(whole.workspace).distribution, WholePlanFigures)
    assert any(line.startswith("partitions     none: ") for line in read_status(whole.workspace).lines())


def test_changed_settings_take_effect_when_the_runner_checks(whole: Engine) -> None:
    whole.execute("create feed More from Wire where title contains 'rock'; subscribe to More output log;")
    whole.execute("drop feed AllJazz cascade;")
    first, folder = current(whole), whole.workspace.folder
    for wanted in ({"partitions": 2}, {"partitions": 4}, {"partitions": 4, "partition_strategy": "spread"}):
        with connect(folder, **wanted) as engine:
            held, before = epoch(engine), current(engine)
            done = ensure_partitioning(engine.workspace, held)
            row = current(engine)
            assert done is not None
            assert (done.version, done.partitions) == (row.version, wanted["partitions"])
            assert row.version > before.version
            assert done.reason
            assert (row.base, row.delta, row.removed) == (first.base, first.delta, first.removed)
            assert row.queries == first.queries
            made = read_partitioning(engine.workspace.storage, row.distribution or "")
            assert len(made.partitions) == wanted["partitions"]
            assert made.strategy == wanted.get("partition_strategy", made.strategy)
            assert ensure_partitioning(engine.workspace, held) is None, "the partitions match the settings"
            assert_divided_alike(engine, row)
    with connect(folder, partitions=1) as engine:
        done = ensure_partitioning(engine.workspace, epoch(engine))
        assert done is not None
        assert done.partitions == 1
        assert (current(engine).distribution, current(engine).pieces) == (None, ())


def test_plan_above_plan_megabytes_is_partitioned(tmp_path: Path) -> None:
    with connect(tmp_path / "workspace", plan_megabytes=1) as engine:
        title = Attribute("title")
        asked: dict[int, Node] = {n: Filter(Read(1), Contains(title, (f"word{n}",))) for n in range(2, 5_000)}
        size = compile_base(engine.workspace.storage, "plans/large", map(PlanQuery, asked), asked).size
        assert size > 1 << 20
        with engine.workspace.catalog.write() as connection:
            plan_versions.publish_plan(connection, "plans/large", None, len(asked))
        choice = partition_plan.wanted_partitions(engine.workspace, "plans/large")
        assert choice.count > 1
        done = ensure_partitioning(engine.workspace, epoch(engine))
        assert done is not None
        assert done.partitions == choice.count
        assert choice.reason in done.reason
        figures = read_status(engine.workspace).distribution
        assert isinstance(figures, PartitionFigures)
        assert all(partition.bytes < 1 << 20 for partition in figures.partitions)


def test_partitioning_is_not_published_over_another_base_or_without_the_lease(
    whole: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(whole.workspace.folder, partitions=2) as engine:
        held, real = epoch(engine), partition_plan.partition_queries

        def meanwhile(*arguments: object, **named: object) -> object:
            whole.execute("create feed Late from Wire where title contains 'soul'; subscribe to Late output log;")
            return real(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(partition_plan, "partition_queries", meanwhile)
        done = ensure_partitioning(engine.workspace, held)
        row = current(engine)
        assert done is not None
        assert row.delta is not None, "a declaration in the meantime is kept"
        assert row.version == done.version
        assert_divided_alike(engine, row)
    with connect(whole.workspace.folder, partitions=3) as engine:
        held = epoch(engine)

        def rebased(*arguments: object, **named: object) -> object:
            with engine.workspace.catalog.write() as connection:
                plan_versions.publish_plan(connection, "plans/other", None, 1)
            return real(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(partition_plan, "partition_queries", rebased)
        assert ensure_partitioning(engine.workspace, held) is None
        assert current(engine).base == "plans/other"
    with connect(whole.workspace.folder, partitions=2) as engine:
        with engine.workspace.catalog.write() as connection:
            plan_versions.publish_plan(connection, row.base, None, 1)
        monkeypatch.setattr(partition_plan, "partition_queries", real)
        with pytest.raises(FencedError):
            ensure_partitioning(engine.workspace, held - 1)


def test_run_partitions_before_matching_and_continues_if_that_fails(
    whole: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*arguments: object, **named: object) -> object:
        raise ValueError("a mistake of ours")

    with connect(whole.workspace.folder, partitions=2) as engine, monkeypatch.context() as patched:
        patched.setattr(partition_plan, "partition_queries", fails)
        made = Runner(engine.workspace, SimpleNamespace, engine._parts())
        assert made.run(once=True).state == "stopped"
        assert made.health().counts["turns failed"] == 1
        assert "the plan could not be distributed over workers" in caplog.text
        assert current(engine).distribution is None
    with connect(whole.workspace.folder, partitions=2) as engine:
        opened: list[str | None] = []

        def spark() -> object:
            opened.append(current(engine).distribution)
            return SimpleNamespace()

        Runner(engine.workspace, spark, engine._parts()).run(once=True)
        assert opened == [current(engine).distribution]
        assert opened != [None]


def test_damaged_partitioning_is_created_again(divided: Engine) -> None:
    row = current(divided)
    path = divided.workspace.storage.local(f"{row.distribution}/{MANIFEST}")
    path.chmod(0o644)
    path.write_text("{")
    done = ensure_partitioning(divided.workspace, epoch(divided))
    assert done is not None
    assert current(divided).distribution != row.distribution
    assert_divided_alike(divided, current(divided))
    assert isinstance(read_status(divided.workspace).distribution, PartitionFigures)


def test_recompiled_base_is_partitioned_again(divided: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    held, before = epoch(divided), current(divided)
    done = reoptimize(divided.workspace, held)
    assert done is not None, "a partitioned plan is checked even without new statistics"
    assert done.version is None
    divided.execute("create feed More from Wire where title contains 'rock'; subscribe to More output log;")
    monkeypatch.setattr(plan_change, "_MIN_DELTA_QUERIES", 0)
    monkeypatch.setattr(plan_change, "_DELTA_FRACTION", 0.02)
    grown = reoptimize(divided.workspace, held)
    row = current(divided)
    assert grown is not None
    assert grown.version == row.version
    assert row.delta is None
    assert row.base != before.base
    assert len(row.pieces) == 4
    assert_divided_alike(divided, row)


def test_a_divided_base_has_a_larger_delta(divided: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_change, "_MIN_DELTA_QUERIES", 2)
    monkeypatch.setattr(plan_change, "_DELTA_FRACTION", 0.0)
    base = current(divided).base
    for number in range(4):
        divided.execute(f"create feed L{number} from Wire where n > {number}; subscribe to L{number} output log;")
        assert current(divided).base == base
    divided.execute("create feed L9 from Wire where n > 9; subscribe to L9 output log;")
    row = current(divided)
    assert row.base != base, "at twice the size, a declaration compiles a new base"
    assert_divided_alike(divided, row)


def test_folders_of_referenced_partitionings_are_kept(divided: Engine) -> None:
    root, held = divided.workspace, epoch(divided)
    row = current(divided)
    assert remove_orphans(root.catalog, root.storage, older_than=-1) == 0
    verify_partitioning(root.storage, row.distribution or "")
    with root.catalog.write() as connection:
        for folder in (row.distribution or "", "plans/gone"):
            partition_loads.note_loads(connection, folder, [PartitionLoad(0, 1, 1, 1, 1)])
        newest = plan_versions.publish_plan(connection, row.base, None, row.queries)
        connection.execute(text("update plans set created = 0"))
        segment = match_segments.MatchSegment(1, 0, 1, 1, newest, 0, 0)
        match_segments.commit_segment(connection, segment, [], epoch=held)
    run_maintenance(root, held, chores=True)
    with root.catalog.read() as connection:
        assert not partition_loads.known_loads(connection, "plans/gone")
        assert not partition_loads.known_loads(connection, row.distribution or "")
    with pytest.raises(CorruptDataError):
        read_partitioning(root.storage, row.distribution or "")
    assert remove_orphans(root.catalog, root.storage, older_than=-1) == 0, (
        "their folders were deleted with the version"
    )


def test_backup_contains_the_partitions(divided: Engine, tmp_path: Path) -> None:
    row = current(divided)
    back_up(divided.workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with connect(tmp_path / "restored", partitions=3) as engine:
        assert current(engine) == row
        assert_divided_alike(engine, row)
        verify_partitioning(engine.workspace.storage, row.distribution or "")
        assert ensure_partitioning(engine.workspace, epoch(engine)) is None


def test_doctor_checks_every_partition(divided: Engine) -> None:
    row, folder = current(divided), str(divided.workspace.folder)
    well = CliRunner().invoke(app, ["doctor", "-w", folder])
    assert "in 3 partitions" in well.output
    for damaged in (f"{row.pieces[-1]}/arrays.npy", f"{row.distribution}/{ASSIGNMENT}"):
        path = divided.workspace.storage.local(damaged)
        kept = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        result = CliRunner().invoke(app, ["doctor", "-w", folder])
        assert "digest" in result.output or "damaged" in result.output, result.output
        assert result.exit_code == 5
        path.write_bytes(kept)


def test_figures_contain_expected_and_measured_load(divided: Engine) -> None:
    row = current(divided)
    figures = read_status(divided.workspace).distribution
    assert isinstance(figures, PartitionFigures)
    assert (figures.copies, figures.skew) == (None, None)
    assert 0.0 <= figures.expected_copies <= 3.0
    assert any("none measured yet" in line for line in read_status(divided.workspace).lines())
    loads = [PartitionLoad(0, 100, 40, 3_000, 1), PartitionLoad(2, 50, 9, 1_000, 2)]
    with divided.workspace.catalog.write() as connection:
        partition_loads.note_loads(connection, row.distribution or "", loads)
    status = read_status(divided.workspace)
    assert isinstance(status.distribution, PartitionFigures)
    assert status.distribution.skew == pytest.approx(3_000 / (4_000 / 3))
    assert [partition.items for partition in status.distribution.partitions] == [100, 0, 50]
    assert status.to_json()["partitions"]["partitions"][2]["loads"] == 2
    (line,) = (line for line in status.lines() if line.startswith("partitions"))
    assert f"3 {status.distribution.strategy}" in line
    assert any("2.2 times the mean" in line for line in status.lines())
    gauges = read_vitals(divided.workspace).distribution
    assert (gauges["runnel_partitions"], gauges["runnel_partition_loads"]) == (3, 3)
    assert gauges["runnel_partition_skew"] == pytest.approx(2.25)
    text, _ = render_metrics(divided.workspace, _Run())
    values = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if not line.startswith("#"))
    assert (values["runnel_partitions"], values["runnel_partition_loads"]) == ("3.0", "3.0")
    assert float(values["runnel_partition_skew"]) == pytest.approx(2.25)
    assert "runnel_partition_copies" not in values, "no batch was matched in partitions yet"


class _Run:
    """A healthy run that did nothing."""

    def health(self) -> Health:
        return Health(True, True, (), {})


def test_match_rates_are_assigned_to_their_queries() -> None:
    known = StreamKnowledge(matched=(np.array([3, 9]), np.array([0.5, 0.25])))
    matches = known.matches(np.array([1, 3, 8, 9, 10]))
    assert matches is not None
    assert matches.tolist() == [0.0, 0.5, 0.0, 0.25, 0.0]
    assert StreamKnowledge().matches(np.array([1])) is None
    nothing = StreamKnowledge(matched=(np.empty(0, dtype=np.int64), np.empty(0))).matches(np.array([1]))
    assert nothing is not None
    assert nothing.tolist() == [0.0]


def test_stream_statistics_are_used_for_partitioning(divided: Engine) -> None:
    with divided.workspace.catalog.write() as connection:
        stream_statistics.note(connection, {1: StreamSample(1_000.0, {"rock": 900.0})})
        stream_statistics.learn(connection)
    with divided.workspace.catalog.read() as connection:
        known = read_stream_knowledge(divided.workspace, connection)
    assert known.frequencies["rock"] > 0.5
    assert known.matched is None, "nothing was matched yet"
