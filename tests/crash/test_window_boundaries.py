"""`kill -9` while windows are filled, stored, merged and collected. Afterwards they equal the definition.

The process that is killed matches without Spark, and is killed before or after a write or deletion of a file of
windows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runnel.catalog.logs import windows
from runnel.catalog.store import leases
from runnel.engine import Engine, connect
from runnel.engine.upkeep.maintenance import run_maintenance
from tests.crash.harness import JOINS, deadly_storage, item, verify_windows
from tests.integration.gated_runs import verify
from tests.integration.in_process import InProcess

pytestmark = pytest.mark.crash

_STEPS = 4
_PROGRAM = """
import os, sys
from runnel.engine import connect
from tests.crash.test_window_boundaries import work
with connect(sys.argv[1], orphan_seconds=0.0, storage=sys.argv[2].replace("GROUP", str(os.getpgrp()))) as engine:
    work(engine, int(sys.argv[3]))
"""
FIRST, LAST = 40, 12


def work(engine: Engine, first: int) -> None:
    """Match and maintain in some steps from one on, and publish more items before each."""
    run = InProcess(engine, slice_items=7)
    for step in range(first, _STEPS):
        if step == 1:
            engine.execute(JOINS)  # the windows are filled with the items of the first step
        numbers = range(FIRST + step * LAST, FIRST + (step + 1) * LAST)
        for feed, remainder in (("Wire", 0), ("Other", 1)):
            engine.publish(feed, [item(number) for number in numbers if number % 2 == remainder])
        run.match()
        maintain(engine, run)
    run.close()
    with engine.workspace.catalog.write() as connection:
        leases.release(connection, run.lease)


def maintain(engine: Engine, run: InProcess) -> None:
    """Merge files of windows in pairs, and delete those that were merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.streaming.window_store._FAN_IN", 2)
        run_maintenance(engine.workspace, run.epoch, chores=True)


def _work_elsewhere(root: Path, storage: str) -> int:
    """Work in a process that may be killed. Return its exit code."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(root), storage, "0"],
        start_new_session=True,
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
        timeout=500,
    )
    assert ended.returncode in (0, -9), ended.stderr.decode()
    return ended.returncode


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    with connect(folder) as engine:
        engine.execute("register feed Wire; register feed Other;")
        engine.publish("Wire", [item(number) for number in range(0, FIRST, 2)])
        engine.publish("Other", [item(number) for number in range(1, FIRST, 2)])
    return folder


def _resume(root: Path) -> None:
    """Declare what was not declared, publish what was not published, match everything and verify it."""
    with connect(root, orphan_seconds=0.0) as engine:
        if engine.status().virtual_feeds == 0:
            engine.execute(JOINS)
        work(engine, 2)
        run = InProcess(engine)
        run.match()
        verify(engine)
        verify_windows(engine)
        maintain(engine, run)
        maintain(engine, run)
        verify_windows(engine)
        engine.publish("Other", [item(1001) | {"story": 77}])
        engine.publish("Wire", [item(1002) | {"story": 77}])
        run.match()
        verify(engine)
        verify_windows(engine)
        maintain(engine, run)
        run.close()
        stored = {file.path for file in engine.workspace.storage.files("windows")}
        with engine.workspace.catalog.read() as connection:
            assert stored == windows.segment_paths(connection), "a file that nothing refers to stays"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_killed_at_an_operation_on_files_of_windows(root: Path, tmp_path: Path, at: int, when: str) -> None:
    storage = deadly_storage(root, tmp_path / "counter", "windows", when).replace("at=1", f"at={at}")
    assert _work_elsewhere(root, storage) == -9
    _resume(root)


def test_work_that_is_not_killed_equals_the_definition(root: Path, tmp_path: Path) -> None:
    storage = deadly_storage(root, tmp_path / "counter", "windows", "after").replace("at=1", "at=1000")
    assert _work_elsewhere(root, storage) == 0
    assert int((tmp_path / "counter").stat().st_size) > 0
    _resume(root)
