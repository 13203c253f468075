"""If Spark rejects all tasks while its query stays active, the runner reports that it is unhealthy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.engine import connect
from tests.crash.harness import wait_until
from tests.services import kill_session

pytestmark = [pytest.mark.crash, pytest.mark.spark]


def test_runner_is_unhealthy_if_spark_rejects_its_tasks(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with connect(root) as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.publish("Wire", [{"id": "first", "title": "rock"}])
    repository = Path(__file__).parents[2]
    with (tmp_path / "answers").open("wb") as answers, (tmp_path / "runner.log").open("wb") as log:
        runner = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.refused_tasks", root],
            cwd=repository,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])},
            stdout=answers,
            stderr=log,
            start_new_session=True,
        )
    try:
        lines = _lines_of(tmp_path / "answers", runner)
        assert len(lines) == 2, (tmp_path / "runner.log").read_text()
        healthy, stuck = [json.loads(line) for line in lines]
    finally:
        kill_session(runner)
    assert healthy == [200, {"status": "ok", "reasons": []}]
    status, body = stuck
    assert status == 503
    assert any(
        re.fullmatch(r"matching is stuck: 1 items wait, and there was no progress for \d+ seconds", reason)
        for reason in body["reasons"]
    ), body


def _lines_of(file: Path, runner: subprocess.Popen[bytes]) -> list[str]:
    """Return both lines that the runner prints, or fewer if it has ended."""
    wait_until(lambda: len(file.read_text().splitlines()) == 2 or runner.poll() is not None, 900)
    return file.read_text().splitlines()
