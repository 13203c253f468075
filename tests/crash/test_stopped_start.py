"""SIGTERM while Spark starts ends the run, without an error, before Spark is up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runnel.engine import connect
from tests.crash.harness import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.spark]


def test_sigterm_while_the_jvm_starts_ends_the_run(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with connect(root) as engine:
        engine.execute("register feed Wire; subscribe to Wire output log;")
        engine.publish("Wire", [{"id": "1"}])
        runner = subprocess.Popen(
            [str(Path(sys.executable).with_name("runnel")), "run", "-w", str(root), "--master", "local[2]"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children = Path(f"/proc/{runner.pid}/task/{runner.pid}/children")
        wait_until(lambda: children.read_text() != "" and list((root / "spark").glob("*/lock")) != [], pause=0.005)
        runner.terminate()
        told, problems = runner.communicate(timeout=240)
        assert (runner.returncode, problems) == (0, ""), problems
        assert "0 items matched" in told
        assert engine.status().runner == "none"
    log = (root / "logs" / "runnel.log").read_text()
    assert "the run ends: it was stopped; 1 items wait for the next run" in log
    assert "Spark's JVM was killed" not in log
    assert not (root / "checkpoints").exists(), "Spark was up"
    assert list((root / "spark").iterdir()) == []
