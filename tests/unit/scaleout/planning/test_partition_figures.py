"""What status, explain and the report show about partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.scaleout.planning.partitioned_workspaces import DECLARED, current, epoch, move_everything
from typer.testing import CliRunner

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.cli.main import app
from runnel.engine import Engine, connect
from runnel.engine.ask.status import read_status
from runnel.engine.ask.vitals import read_vitals
from runnel.engine.planning.ports import WholePlanFigures
from runnel.scaleout.divide.choose_partitions import PartitionChoice
from runnel.scaleout.partitioning import MANIFEST, Partition, Partitioning, WeighedStrategy, read_partitioning
from runnel.scaleout.planning import partition_loads
from runnel.scaleout.planning.partition_figures import PartitionFigures, next_start
from runnel.scaleout.planning.partition_loads import PartitionLoad
from runnel.scaleout.planning.partition_plan import ensure_partitioning
from runnel.web.collect_report import collect_report


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "workspace", partitions=3, partition_strategy="grouped") as opened:
        opened.execute(DECLARED)
        yield opened


def _status_text(folder: Path, **settings: Any) -> str:
    """Return the text of `status` about partitions with some settings, in one line."""
    with connect(folder, **settings) as engine:
        lines = read_status(engine.workspace).lines()
    first = next(index for index, line in enumerate(lines) if line.startswith("partitions"))
    last = next(index for index, line in enumerate(lines) if line.startswith("runner"))
    return re.sub(r"\s+", " ", " ".join(lines[first:last]))


def test_status_shows_current_partitions_and_the_effect_of_changed_settings(divided: Engine) -> None:
    folder = divided.workspace.folder
    assert "partitions 3 grouped: the number is set in the settings" in _status_text(folder, partitions=3)
    assert "next start" not in _status_text(folder, partitions=3)
    for settings, after in (
        ({"partitions": 1}, "gives every worker all queries (as the settings say)"),
        ({"partitions": 0}, "gives every worker all queries (the plan takes"),
        ({"partitions": 4}, "creates 4 partitions (as the settings say)"),
    ):
        text = _status_text(folder, **settings)
        assert f"partitions 3 grouped, as created last at its next start, the runner {after}" in text
    text = _status_text(folder, partitions=3, partition_strategy="spread")
    assert (
        "3 grouped: the number is set in the settings at its next start, the runner uses the strategy spread" in text
    )
    with connect(folder, partitions=1) as engine:
        figures = read_status(engine.workspace).to_json()["partitions"]
        assert figures["count_reason"] is None
        assert "every worker" in figures["next_start"]
        explained = engine.explain("AllRock")
        assert explained.to_json()["partition"]["next_start"] == figures["next_start"]
        assert any("at its next start, the runner gives every" in line for line in explained.lines)


def test_number_in_the_next_start_text_has_separators() -> None:
    made = Partitioning("plans/a", "plans/b", "plans/c", 1, (Partition("plans/d", 1, 1, 0.5, 1.0),) * 2, "grouped")
    assert next_start(made, PartitionChoice(2, "so", "so"), "grouped") is None
    assert next_start(made, PartitionChoice(1_024, "so", "so"), "") == (
        "at its next start, the runner creates 1,024 partitions (so)"
    )


def test_status_explains_why_a_plan_has_no_partitions(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    with connect(folder) as engine:
        assert read_status(engine.workspace).to_json()["undivided"] is None, "there is no plan yet"
        engine.execute(DECLARED)
        status = read_status(engine.workspace)
        assert isinstance(status.distribution, WholePlanFigures)
        assert status.to_json()["partitions"] is None
        assert status.to_json()["undivided"]["damaged"] is False
        assert collect_report(engine, "Run").distribution is None
    assert re.match(
        r"partitions none: every worker has all queries \(the plan takes [\d.]+ KiB and a worker may map 4.0 GiB\)$",
        _status_text(folder),
    )
    assert "none: every worker has all queries (as the settings say)" in _status_text(folder, partitions=1)
    assert "until the runner creates 2 partitions (as the settings say)" in _status_text(folder, partitions=2)


def test_status_reports_a_damaged_partitioning(divided: Engine) -> None:
    row, folder = current(divided), divided.workspace.folder
    path = divided.workspace.storage.local(f"{row.distribution}/{MANIFEST}")
    kept = path.read_bytes()
    path.chmod(0o644)
    path.write_text("{")
    status_text = _status_text(folder, partitions=3)
    assert f"partitions damaged: {row.distribution}/{MANIFEST} is not a partitioning" in status_text
    assert "`runnel doctor` shows details" in status_text
    status = read_status(divided.workspace).to_json()
    assert (status["partitions"], status["undivided"]["damaged"]) == (None, True)
    path.write_bytes(kept)
    assert read_status(divided.workspace).to_json()["undivided"] is None
    divided.workspace.storage.local(f"{row.pieces[-1]}/manifest.json").unlink()
    assert "refers to folders that do not exist" in _status_text(folder, partitions=3)


def test_status_lines_about_partitions_fit_into_80_columns(divided: Engine) -> None:
    loads = [PartitionLoad(0, 100, 40, 3_000, 1_000), PartitionLoad(2, 50, 9, 1_000, 2_000)]
    with divided.workspace.catalog.write() as connection:
        partition_loads.note_loads(connection, current(divided).distribution or "", loads)
    with connect(divided.workspace.folder, partitions=1) as engine:
        lines = read_status(engine.workspace).lines()
    shown = [line for line in lines if line.startswith(("partitions", " "))]
    assert len(shown) > 3
    assert max(map(len, shown)) <= 80
    assert all(line.startswith((" " * 15, "partitions     ")) for line in shown)
    assert any("3,000 plans" in line for line in shown)


def test_copies_are_measured_only_with_the_current_partitions(divided: Engine) -> None:
    held, before = epoch(divided), current(divided)
    with divided.workspace.catalog.write() as connection:
        lineage = match_segments.start_lineage(connection, "test", reason="test").id
        old = MatchSegment(lineage, 0, 1, 10, before.version, 10, 0, {"copies": 30})
        match_segments.commit_segment(connection, old, [], epoch=held)
    figures = read_status(divided.workspace).distribution
    assert isinstance(figures, PartitionFigures)
    assert figures.copies == 3.0
    move_everything(divided, held)
    figures = read_status(divided.workspace).distribution
    assert isinstance(figures, PartitionFigures)
    assert figures.copies is None, "nothing was matched with the new partitions yet"
    with divided.workspace.catalog.write() as connection:
        new = MatchSegment(lineage, 1, 11, 20, current(divided).version, 10, 0, {"copies": 5})
        match_segments.commit_segment(connection, new, [], epoch=held)
    figures = read_status(divided.workspace).distribution
    assert isinstance(figures, PartitionFigures)
    assert figures.copies == 0.5
    assert read_vitals(divided.workspace).distribution["runnel_partition_copies"] == 0.5
    moved = "\n".join(divided.explain("AllRock").lines)
    assert re.search(r"[\d.]+ µs\s+on\s+the\s+busiest\s+worker,\s+with\s+one\s+worker\s+per\s+partition", moved), (
        moved
    )


def test_reason_contains_the_time_of_the_busiest_worker(divided: Engine) -> None:
    figures = read_status(divided.workspace).distribution
    assert isinstance(figures, PartitionFigures)
    assert figures.expected_busiest is not None
    assert f"{figures.expected_busiest:,.1f} µs on the busiest" in figures.reason
    made = read_partitioning(divided.workspace.storage, current(divided).distribution or "")
    (strategy,) = (entry for entry in made.weighed if entry.strategy == "grouped")
    assert isinstance(strategy, WeighedStrategy)
    assert figures.expected_busiest < strategy.longest, "the router's work is shared"
    explanation = divided.explain("AllRock")
    assert "with one worker per partition" in " ".join(explanation.lines)
    assert {entry["strategy"] for entry in explanation.to_json()["partition"]["weighed"]} == {"grouped", "spread"}
    assert explanation.to_json()["partition"]["expected_busiest"] == figures.expected_busiest
    assert all("longest" not in value for value in explanation.to_json()["partition"]["weighed"]), (
        "the JSON key says that the router is included"
    )


def test_partitions_are_numbered_from_one(divided: Engine) -> None:
    figures = read_status(divided.workspace).to_json()["partitions"]
    assert [partition["number"] for partition in figures["partitions"]] == [1, 2, 3]
    explained = divided.explain("AllRock")
    number = explained.to_json()["partition"]["partition"]["number"]
    assert any(line.startswith(f"in partition {number} of 3") for line in explained.lines)


def test_report_contains_the_partitions(divided: Engine) -> None:
    table = collect_report(divided, "Run").distribution
    assert table is not None
    assert table.facts[0] == "3 grouped: the number is set in the settings"
    assert [row[0] for row in table.rows] == ["1", "2", "3"]
    assert sum(int(row[1]) for row in table.rows) == current(divided).queries
    assert {len(row) for row in table.rows} == {len(table.heads)}


def test_status_explains_fewer_partitions_than_in_the_settings(tmp_path: Path) -> None:
    with connect(tmp_path / "workspace", partitions=1_024) as engine:
        engine.execute(DECLARED)
        row = current(engine)
        assert len(row.pieces) == row.queries + 1
        assert ensure_partitioning(engine.workspace, epoch(engine)) is None, "the partitions match the settings"
        lines = read_status(engine.workspace).lines()
    (line,) = (line for line in lines if line.startswith("partitions"))
    assert line.startswith(f"partitions     {row.queries} ")
    text = (
        CliRunner()
        .invoke(app, ["status", "-w", str(tmp_path / "workspace")], env={"RUNNEL_PARTITIONS": "1024"})
        .output
    )
    assert "instead of the 1,024 in the settings" in re.sub(r"\s+", " ", text)
    assert f"because there are only {row.queries} queries" in re.sub(r"\s+", " ", text)
