"""A workspace without write permission: commands that write fail with a clear error, and commands that read work."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess

import runnel

SCRIPT = """
register feed Wire;
create feed Rock from Wire where title contains 'rock'; subscribe to Rock output jsonl 'rock.jsonl';
"""
_PR_CAPBSET_DROP = 24
_PRIVILEGES = (1, 2, 3)
"""What lets root write where permissions forbid it: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER."""


def _give_up_privileges() -> None:
    """Drop root's privileges, so that file permissions apply to the process."""
    if os.getuid() == 0:
        for value in _PRIVILEGES:
            ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, value, 0, 0, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A workspace that the commands of the test can read but not write."""
    folder = tmp_path / "root"
    with runnel.connect(folder) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [{"id": "1", "title": "rock"}, {"id": "2", "title": "jazz"}])
        InProcess(engine).run()
    gc.collect()  # connections to the catalog
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in paths:
        if path.exists():
            path.chmod(0o755 if path.is_dir() else 0o644)


def _runnel(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, as users do."""
    return subprocess.run(
        [sys.executable, "-c", "from runnel.cli.main import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        preexec_fn=_give_up_privileges,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("show", "feeds"),
        ("show", "quarantine"),
        ("show", "Rock"),
        ("explain", "Rock"),
        ("why", "1", "Rock"),
        ("exec", "show subscriptions;"),
        ("preview", "create feed Jazz from Wire where title contains 'jazz';"),
        ("queries",),
        ("doctor", "--deep"),
    ],
)
def test_commands_that_only_read_work(folder: Path, arguments: tuple[str, ...]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    done = _runnel(*arguments, "--workspace", str(folder))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("exec", "register feed Other;"),
        ("exec", "drop feed Rock cascade;"),
        ("publish", "Wire", "{document}"),
        ("run", "--once"),
        ("owner", "add", "ann"),
        ("adopt",),
    ],
)
def test_commands_that_write_fail_with_a_clear_error(
    folder: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    document = tmp_path / "document.json"
    document.write_text('{"id": "3", "title": "rock"}')
    document.chmod(0o644)
    given = (argument.format(document=document) for argument in arguments)
    done = _runnel(*given, "--workspace", str(folder))
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot be written" in done.stderr
    assert "hint:" in done.stderr


def test_declaring_works_with_a_read_only_lock_file(tmp_path: Path) -> None:
    """Root creates the file with root as its owner; then the workspace's owner declares."""
    folder = tmp_path / "root"
    with runnel.connect(folder) as engine:
        engine.execute(SCRIPT)
    (folder / "catalog.sqlite.declaring").chmod(0o444)
    done = _runnel("exec", "register feed Other;", "--workspace", str(folder))
    assert done.returncode == 0, done.stderr


def test_init_in_a_read_only_folder_reports_it(folder: Path) -> None:
    done = _runnel("init", str(folder / "inside"))
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert "hint:" in done.stderr


def test_read_only_process_sees_current_changes_of_a_writer(folder: Path) -> None:
    folder.chmod(0o755)
    for path in folder.glob("catalog.sqlite*"):
        path.chmod(0o644)
    (folder / "items").chmod(0o755)
    (folder / "items" / "log").mkdir(exist_ok=True)
    (folder / "items" / "log").chmod(0o755)
    with runnel.connect(folder) as engine:
        engine.publish("Wire", [{"id": "3", "title": "rock"}])
        assert (folder / "catalog.sqlite-wal").stat().st_size > 0
        for path in folder.glob("catalog.sqlite*"):
            path.chmod(0o444)
        folder.chmod(0o555)
        done = _runnel("status", "--json", "--workspace", str(folder))
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accepted"] == 3


def test_uncheckpointed_wal_is_not_ignored(folder: Path) -> None:
    """Without it, the catalog would be outdated."""
    folder.chmod(0o755)
    (folder / "catalog.sqlite-wal").write_bytes(b"changes")
    folder.chmod(0o555)
    done = _runnel("status", "--workspace", str(folder))
    assert done.returncode == 4
    assert "not closed properly" in done.stderr
    folder.chmod(0o755)
    (folder / "catalog.sqlite-wal").unlink()
