"""Faults other than crashes: a full disk, a second runner, a query declared during a run, and a stop that drains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.engine import Engine, connect
from runnel.errors import RunnerActiveError, StorageFullError
from tests.crash.harness import SCRIPT, Victim, item, verify, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.spark]


def _matched(engine: Engine, upto: int) -> bool:
    return engine.workspace.matches.matched_upto() >= upto


def test_run_survives_full_disk_second_runner_new_query_and_stop(tmp_path: Path) -> None:
    root, flag = tmp_path / "root", tmp_path / "full"
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(0)])
        victim = Victim(root, "--storage", f"full+{root.as_uri()}?flag={flag}")
        wait_until(lambda: _matched(engine, 1))

        # A second runner is rejected by the library and by the command, but clients are not.
        with pytest.raises(RunnerActiveError, match="a runner is active"):
            engine.run(once=True)
        told = subprocess.run(
            [Path(sys.executable).with_name("runnel"), "run", "--once", "-w", root],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"COLUMNS": "200"},
        )
        assert told.returncode == 4
        assert "a runner is active" in told.stderr
        assert "process" in engine.status().runner

        # A query declared during a run is live in the next batch, and matches only later items.
        engine.publish("Wire", [item(1)])
        engine.execute("create feed Late from Wire; subscribe to Late output log;")
        engine.publish("Wire", [item(2)])
        wait_until(lambda: _matched(engine, 3))
        assert [one.item.id for one in engine.matches("Late")] == ["2"]

        # Full disk: matching pauses and reports it. With free space it continues, and nothing is lost.
        flag.touch()
        engine.publish("Wire", [item(number) for number in range(3, 20)])
        wait_until(lambda: "no disk space" in engine.status().runner)
        assert engine.workspace.matches.matched_upto() == 3
        flag.unlink()
        wait_until(lambda: _matched(engine, 20))

        # SIGTERM drains: what was accepted before it is matched and delivered.
        engine.publish("Other", [item(number) for number in range(20, 60)])
        victim.terminate()
        assert victim.wait() == 0
        assert engine.status().runner == "none"
        verify(engine, 60)


def test_publisher_receives_an_error_if_the_disk_is_full(tmp_path: Path) -> None:
    root, flag = tmp_path / "root", tmp_path / "full"
    with connect(root, storage=f"full+{root.as_uri()}?flag={flag}") as engine:
        engine.execute("register feed Wire;")
        flag.touch()
        with pytest.raises(StorageFullError, match="no disk space"):
            engine.publish("Wire", [item(1)])
        flag.unlink()
        assert engine.publish("Wire", [item(1)]).accepted == 1
