"""Processes that are killed while they change or rewrite a table: the rows as of every sequence stay the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import runnel
from runnel.catalog.logs import table_files
from runnel.catalog.store import leases
from runnel.engine import Engine
from runnel.engine.upkeep.maintenance import run_maintenance
from tests.crash.harness import deadly_storage
from tests.log_upkeep import collect_garbage

pytestmark = pytest.mark.crash

TABLE = "register table T (a text key, n number)"


def open_engine(root: Path | str, **settings: Any) -> Engine:
    """Open a workspace whose tables are rewritten after two changes."""
    return runnel.connect(root, table_tail_rows=1, orphan_seconds=0.0, **settings)


def rewrite(engine: Engine) -> None:
    """Run maintenance, as a runner does."""
    with engine.workspace.catalog.write() as connection:
        lease = leases.acquire(connection, 60)
    run_maintenance(engine.workspace, lease.epoch, chores=False)
    with engine.workspace.catalog.write() as connection:
        leases.release(connection, lease)


def publish(engine: Engine) -> None:
    """Publish ten changes, of which five are new rows."""
    engine.publish("T", [{"a": f"{number:02}", "n": number} for number in range(5, 15)])


def process_dies(root: Path, storage: str, action: str) -> None:
    """Run a function of this module in a process that is killed at an operation on a file."""
    program = (
        f"import os, sys\nfrom tests.crash.test_tables import open_engine, {action}\n"
        "storage = sys.argv[2].replace('GROUP', str(os.getpgrp()))\n"
        f"{action}(open_engine(sys.argv[1], storage=storage))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(root), storage],
        start_new_session=True,
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == -9, ended.stderr.decode()


def rows_by_sequence(engine: Engine) -> list[list[dict[str, Any]]]:
    last = engine.workspace.items.last_sequence()
    return [[row.values for row in engine.rows("T", at=sequence)] for sequence in range(last + 1)]


def live_paths(engine: Engine) -> set[str]:
    with engine.workspace.catalog.read() as connection:
        return {file.path for file in table_files.live_files(connection)}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3], ids=["history", "base", "old base"])
def test_killed_rewriting_changes_no_row(tmp_path: Path, at: int, when: str) -> None:
    root = tmp_path / "root"
    with open_engine(root) as engine:
        engine.execute(TABLE)
        engine.publish("T", [{"a": str(number), "n": 0} for number in range(10)])
        rewrite(engine)
        engine.publish("T", [{"a": "1", "n": 1}, {"a": "2", "row:deleted": True}])
        engine.publish("T", [{"a": "2", "n": 2}, {"a": "10"}])
        before, files = rows_by_sequence(engine), live_paths(engine)
    storage = deadly_storage(root, tmp_path / "counter", "tables/", when).replace("at=1&", f"at={at}&")
    process_dies(root, storage, "rewrite")
    with open_engine(root) as engine:
        assert rows_by_sequence(engine) == before
        assert (live_paths(engine) == files) == (at < 3), "the catalog lists new files after both were written"
        collect_garbage(engine.workspace.catalog, engine.workspace.storage, older_than=0)
        assert rows_by_sequence(engine) == before
        rewrite(engine)
        assert rows_by_sequence(engine) == before
        assert engine.status().table_tail == 0
        collect_garbage(engine.workspace.catalog, engine.workspace.storage, older_than=0)
        assert {file.path for file in engine.workspace.storage.files("tables")} == live_paths(engine)


@pytest.mark.parametrize("when", ["before", "after"])
def test_changes_of_a_killed_publisher_can_be_published_again(tmp_path: Path, when: str) -> None:
    root = tmp_path / "root"
    with open_engine(root) as engine:
        engine.execute(TABLE)
        engine.publish("T", [{"a": f"{number:02}", "n": 0} for number in range(10)])
        before = rows_by_sequence(engine)
    process_dies(root, deadly_storage(root, tmp_path / "counter", "items/", when), "publish")
    with open_engine(root) as engine:
        assert rows_by_sequence(engine) == before, "the transaction that accepts the changes was not committed"
        assert engine.status().rows == 10
        publish(engine)
        assert engine.status().rows == 15
        assert [row.values["n"] for row in engine.rows("T")] == [0.0] * 5 + [float(number) for number in range(5, 15)]
