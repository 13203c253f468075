"""A machine is too busy to start Spark's Python processes in time. A bounded run retries, and logs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.engine import connect
from tests.crash.harness import SCRIPT, item, verify

pytestmark = [pytest.mark.crash, pytest.mark.spark]

_SLOW_START = """
import os, sys, time
if "pyspark.sql.streaming.python_streaming_source_runner" in sys.orig_argv:
    with open(os.environ["STARTS"], "a+") as file:
        file.write("x")
        file.seek(0)
        if len(file.read()) <= 6:
            time.sleep(15)
"""


def test_bounded_run_tolerates_more_slow_starts_than_other_failures(tmp_path: Path) -> None:
    root, starts = tmp_path / "root", tmp_path / "starts"
    (tmp_path / "sitecustomize.py").write_text(_SLOW_START)
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(number) for number in range(30)])
        done = subprocess.run(
            [str(Path(sys.executable).with_name("runnel")), "run", "--once", "-w", str(root), "--master", "local[2]"],
            env=os.environ | {"PYTHONPATH": str(tmp_path), "STARTS": str(starts)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(starts.read_text()) >= 7
        # If the machine is really busy, there are additional slow starts.
        assert done.stderr.count("the machine is too busy") >= 6, done.stderr
        assert "matching is retried for up to 30 minutes" in done.stderr
        verify(engine, 30)
