"""The JVM is killed, as by the OOM killer. The runner restarts Spark, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnel.engine import connect
from tests.crash.harness import SCRIPT, Victim, item, verify, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.spark]


def test_runner_restarts_spark_after_its_jvm_was_killed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(number) for number in range(30)])
        victim = Victim(root)
        wait_until(lambda: engine.workspace.matches.matched_upto() == 30)

        # Kill the JVM while it is idle, and during a batch.
        killed = [victim.kill_jvm()]
        engine.publish("Other", [item(number) for number in range(30, 60)])
        wait_until(lambda: engine.workspace.matches.matched_upto() == 60)
        engine.publish("Wire", [item(number) for number in range(60, 2000)])
        killed.append(victim.kill_jvm())
        engine.publish("Other", [item(number) for number in range(2000, 2050)])
        wait_until(lambda: engine.workspace.matches.matched_upto() == 2050)

        assert victim.is_running
        assert len(set(killed)) == 2, "a new JVM was started"
        victim.terminate()
        assert victim.wait() == 0
        verify(engine, 2050)
    told = (root / "victim.log").read_text()
    assert "Traceback" not in told, told
    assert told.count("Spark's JVM was killed by signal 9 (out of memory?); starting Spark again") == 2


def test_bounded_run_restarts_spark_after_its_jvm_was_killed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(number) for number in range(2000)])
        victim = Victim(root, "--once")
        wait_until(lambda: list(root.glob("checkpoints/*/offsets/0")) != [])
        victim.kill_jvm()
        assert victim.wait() == 0
        verify(engine, 2000)
    assert list((root / "spark").iterdir()) == [], "temporary files are left"
