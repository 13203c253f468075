"""Operator figures in status, metrics, report and doctor: correct, inexpensive, and shown only if used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert
from tests.integration.in_process import InProcess
from typer.testing import CliRunner

from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import undecided
from runnel.catalog.store import schema
from runnel.cli.main import app
from runnel.engine import Engine, connect
from runnel.engine.ask.vitals import operator_figures, read_vitals
from runnel.engine.run.health import Health
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.model.undecided import Undecided
from runnel.streaming.worker import operator_work
from runnel.web.collect_report import collect_report
from runnel.web.metrics import render_metrics

MODULE = "tests.crash.city_operators"
SCRIPT = f"""
register feed Wire;
register operator loudness(?level int) from '{MODULE}:loudness' cost 40 ms reading volume;
register operator moody(switch text) from '{MODULE}:moody' on error retry for 1 hours;
create feed Noisy from Wire where loudness(?level) and ?level > 4;
create feed Moody from Wire where moody('/nowhere/at/all');
subscribe to Noisy output log; subscribe to Moody output log;
"""
ITEMS = [{"id": str(number), "title": f"number {number}", "volume": number} for number in range(1, 7)]


class Run:
    """A stub of a run with a constant health."""

    def health(self) -> Health:
        return Health(True, True)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[InProcess]:
    """Create a workspace in which operators answered some calls and failed for two items."""
    operator_work.operators.cache_clear()
    with connect(tmp_path / "workspace") as new:
        (new.workspace.folder / "runnel.toml").write_text(f'operator_modules = ["{MODULE}"]\n')
    with connect(tmp_path / "workspace") as opened:
        OperatorEnvironment.of(opened.workspace.settings).keep(opened.workspace.storage)
        opened.execute(SCRIPT)
        opened.publish("Wire", ITEMS)
        made = InProcess(opened)
        made.match()
        yield made
    operator_work.operators.cache_clear()


@pytest.fixture
def engine(run: InProcess) -> Engine:
    """Return the engine of that workspace."""
    return run.engine


def _doctor(workspace: Path, code: int = 0) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", "-w", str(workspace), "--json"])
    assert result.exit_code == code, result.output
    return {entry["check"]: entry for entry in map(json.loads, result.stdout.splitlines())}


def test_figures_count_calls_answers_and_failures(engine: Engine, run: InProcess) -> None:
    operators = read_vitals(engine.workspace).operators
    assert (operators.registered, operators.calls, operators.unknown, operators.waiting) == (2, 12, 2, 2)
    assert operators.known_answers == 10, "failures are not cached"
    assert operators.known_bytes > 0
    engine.publish("Wire", [{"id": "7", "volume": 100}])
    run.match()
    assert read_vitals(engine.workspace).operators.calls == 14


def test_batch_that_is_committed_again_counts_once(engine: Engine, run: InProcess) -> None:
    engine.publish("Wire", [{"id": "8", "volume": 3}])
    start = run.offset
    run.match()
    counted = read_vitals(engine.workspace).operators
    run.commit(start, run.offset, run.batches - 1)
    assert read_vitals(engine.workspace).operators == counted
    assert (counted.calls, counted.unknown) == (14, 3)


def test_status_shows_operators_only_if_they_are_used(engine: Engine, tmp_path: Path) -> None:
    status = engine.status()
    assert (
        "operators      2, 12 calls, 10 cached answers, 2 left undecided, 2 items wait for a retry" in status.lines()
    )
    assert status.to_json()["operators"]["waiting"] == 2
    quiet = replace(status, operators=replace(status.operators, unknown=0, waiting=0))
    assert "operators      2, 12 calls, 10 cached answers" in quiet.lines()
    with connect(tmp_path / "other") as other:
        assert not any(line.startswith("operators") for line in other.status().lines())


def test_metrics_and_report_show_the_same_figures(engine: Engine) -> None:
    text, _ = render_metrics(engine.workspace, Run())
    values = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if not line.startswith("#"))
    assert values["runnel_operators"] == "2.0"
    assert (values["runnel_operator_calls"], values["runnel_operator_unknown"]) == ("12.0", "2.0")
    assert (values["runnel_operator_waiting"], values["runnel_operator_cache_answers"]) == ("2.0", "10.0")
    assert float(values["runnel_operator_cache_bytes"]) > 0
    used = collect_report(engine, "Run").operators
    assert used is not None
    assert {operator.name: operator.queries for operator in used.operators} == {"loudness": 1, "moody": 1}
    assert (used.calls, used.unknown, used.waiting, used.known_answers) == (12, 2, 2, 10)


def test_reading_operator_figures_scans_no_growing_table(engine: Engine) -> None:
    asked: list[tuple[str, Any]] = []
    with engine.workspace.catalog.read() as connection:
        event.listen(connection, "before_cursor_execute", lambda _c, _k, text, given, *_: asked.append((text, given)))
        operator_figures(connection)
    assert len(asked) == 5
    with engine.workspace.catalog.read() as connection:
        for statement, given in asked:
            steps = connection.exec_driver_sql(f"explain query plan {statement}", given).all()
            scans = [step[3] for step in steps if step[3].startswith("SCAN") and "INDEX" not in step[3]]
            # Registrations are few, and a person writes each.
            assert not [value for value in scans if value != "SCAN operators"], (statement, scans)


def test_doctor_reports_working_operators_as_well(engine: Engine) -> None:
    report = _doctor(engine.workspace.folder)
    assert report["operators"]["detail"] == "2 registered; those in use are installed"
    assert report["retries"]["detail"] == "2 items wait for a retry"
    assert "exist" in report["answers"]["detail"]
    assert [report[name]["hint"] for name in ("operators", "answers", "retries")] == [None] * 3


def test_doctor_does_not_mention_operators_if_there_are_none(tmp_path: Path) -> None:
    connect(tmp_path / "workspace").close()
    assert not {"operators", "answers", "retries"} & _doctor(tmp_path / "workspace").keys()


def test_doctor_warns_about_missing_operators_without_importing_them(engine: Engine) -> None:
    folder = engine.workspace.folder
    (folder / "runnel.toml").write_text('operator_modules = ["city"]\n')
    operators = _doctor(folder)["operators"]
    assert operators["well"], "a warning does not fail the check"
    assert operators["detail"] == (
        f"2 in use cannot be loaded, for example loudness ({MODULE}:loudness): operators of the module {MODULE} are "
        "not allowed; 2 queries stay undecided"
    )
    assert "operator_modules" in operators["hint"]
    with engine.workspace.catalog.write() as connection:
        row = connection.execute(schema.operators.select().where(schema.operators.c.name == "moody")).one()
        content = json.dumps(json.loads(row.content) | {"source": "an_entry_point_that_is_gone"})
        connection.execute(
            schema.operators.update().where(schema.operators.c.name == "moody").values(content=content)
        )
    (folder / "runnel.toml").write_text(f'operator_modules = ["{MODULE}"]\n')
    operators = _doctor(folder)["operators"]
    assert (
        "1 in use cannot be loaded, for example moody (an_entry_point_that_is_gone): there is no operator"
        in (operators["detail"])
    )
    assert "1 query stays undecided" in operators["detail"]
    shown = CliRunner().invoke(app, ["doctor", "-w", str(folder)])
    assert "! operators" in shown.stdout
    with engine.workspace.catalog.write() as connection:
        connection.execute(schema.uses_operators.delete())
    assert _doctor(folder)["operators"]["hint"] is None, "no query uses it"


def test_doctor_reports_missing_cached_answers_as_harmless(engine: Engine) -> None:
    with engine.workspace.catalog.read() as connection:
        paths = [segment.path for segment in operator_cache.live_segments(connection)]
    engine.workspace.storage.delete(paths[0])
    answers = _doctor(engine.workspace.folder)["answers"]
    assert answers["well"]
    assert answers["detail"].startswith(
        f"1 of {len(paths)} files of the operator cache are missing or damaged, for example operators/cache/"
    )
    assert "called again" in answers["hint"]


def test_doctor_reports_undecided_items_that_do_not_exist(engine: Engine) -> None:
    folder, catalog = engine.workspace.folder, engine.workspace.catalog
    with catalog.write() as connection:
        connection.exec_driver_sql("update counters set value = 4 where name = 'retained'")
    retries = _doctor(folder)["retries"]
    assert retries["well"]
    assert "1 of 2 items that wait for a retry were deleted" in retries["detail"]
    with catalog.write() as connection:
        undecided.postpone(connection, [Undecided(99, (2,), "", 1, 1)])
        connection.execute(
            insert(schema.supplements).values(sequence=70, supplements=3, queries="[2]", attempts=1, until=1)
        )
    retries = _doctor(folder, code=5)["retries"]
    assert not retries["well"]
    assert "2 items that wait for a retry have sequences after 6" in retries["detail"]
    assert "backup" in retries["hint"]
