"""A killed runner leaves no files in the system's temporary folder.

Spark's files are below the workspace, and the next run deletes them.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.engine import connect
from runnel.streaming.spark_folder import claim_folder
from tests.crash.harness import SCRIPT, item, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.spark]


def test_killed_runner_leaves_no_files_in_the_system_temporary_folder(tmp_path: Path) -> None:
    root, system = tmp_path / "a workspace", tmp_path / "system"
    system.mkdir()
    command = [str(Path(sys.executable).with_name("runnel")), "run", "-w", str(root), "--master", "local[2]"]
    # The default folder for temporary files of Java and Python.
    environment = os.environ | {"TMPDIR": str(system), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={system}"}
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(number) for number in range(30)])
        with (root / "runner.log").open("wb") as log:
            runner = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            wait_until(
                lambda: engine.workspace.matches.matched_upto() == 30 or runner.poll() is not None, seconds=400
            )
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
        assert engine.workspace.matches.matched_upto() == 30, (root / "runner.log").read_text()
        assert list(system.iterdir()) == []
        (left,) = (root / "spark").iterdir()
        assert stat.S_IMODE(left.stat().st_mode) == 0o700
        assert list(left.glob("blockmgr-*")) != [], "Spark's files are there"

        of_another = claim_folder(root / "spark")
        engine.publish("Wire", [item(number) for number in range(30, 40)])
        done = subprocess.run([*command, "--once"], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert engine.workspace.matches.matched_upto() == 40
        assert list(system.iterdir()) == []
        assert list((root / "spark").iterdir()) == [of_another.path]
        of_another.remove()
