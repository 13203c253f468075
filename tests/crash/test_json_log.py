"""With log_format=json, every log line of a real run is JSON with the documented fields."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runnel import __version__
from runnel.engine import connect
from runnel.engine.run.application_log import FIELDS
from tests.crash.harness import SCRIPT, item, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.spark]

_PROGRESS = {"state", "accepted", "matched", "lag", "delivered"}


def _lines(text: str) -> list[dict[str, Any]]:
    """Parse every line, and check that it has the required fields and only documented ones."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert {"time", "level", "event"} <= line.keys(), line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"]), line
        assert line["level"] in ("info", "warn", "warning", "error", "critical"), line
        assert line.keys() <= {"time", "level", "event", "trace", *FIELDS, *_PROGRESS}, line
    return lines


def _kill_jvm(runner: int) -> None:
    children = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
    (jvm,) = [int(one) for one in children if Path(f"/proc/{one}/comm").read_text().strip() == "java"]
    os.kill(jvm, signal.SIGKILL)


def test_every_log_line_is_json_and_all_events_are_logged(tmp_path: Path) -> None:
    root = tmp_path / "root"
    command = [str(Path(sys.executable).with_name("runnel")), "run", "-w", str(root), "--master", "local[2]"]
    environment = os.environ | {"RUNNEL_LOG_FORMAT": "json", "RUNNEL_LISTEN": "127.0.0.1:0"}
    out, err = tmp_path / "out", tmp_path / "err"
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(number) for number in range(30)])
        with out.open("wb") as stdout, err.open("wb") as stderr:
            runner = subprocess.Popen(
                [*command, "--json"], env=environment, stdout=stdout, stderr=stderr, start_new_session=True
            )
            try:
                wait_until(lambda: engine.workspace.matches.matched_upto() == 30, seconds=400)
                refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
                _kill_jvm(runner.pid)
                engine.publish("Wire", [item(number) for number in range(30, 60)])
                wait_until(lambda: engine.workspace.matches.matched_upto() == 60, seconds=400)
                runner.terminate()
                assert runner.wait(240) == 0
            finally:
                if runner.poll() is None:
                    os.killpg(runner.pid, signal.SIGKILL)
    progress, log = _lines(out.read_text()), _lines(err.read_text())
    assert progress[-1].keys() >= _PROGRESS
    (told,) = _lines(refused.stderr)
    assert [line for line in _lines((root / "logs" / "runnel.log").read_text()) if line != told] == log
    assert _lines((root / "logs" / "spark.log").read_text()) != []
    assert (refused.returncode, refused.stdout, told["kind"]) == (4, "", "RunnerActiveError")
    assert "a runner is active" in told["event"]

    start, end = log[0], log[-1]
    assert (start["version"], start["master"], start["workspace"]) == (__version__, "local[2]", str(root))
    assert end["event"] == "the run ends: it was stopped; 0 items wait for the next run"
    batches = [line for line in log if "matches" in line]
    assert sum(line["items"] for line in batches) == 60
    assert all(line["plan"] == 1 and line["seconds"] > 0 for line in batches)
    assert sum(line["messages"] for line in log if "messages" in line) == progress[-1]["delivered"]
    events = [line["event"] for line in log]
    for expected in (
        "plan version 1 has 8 queries",
        "matching starts lineage 1 after item 0: first run",
        "Spark's JVM was killed by signal 9 (out of memory?); starting Spark again in 2 seconds",
        "Spark was started again",
        "matching continues lineage 1 after batch",
    ):
        assert any(event.startswith(expected) for event in events), (expected, events)
