"""Private folders of processes that use Spark, which are deleted after their process has ended."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

from runnel.streaming.spark_folder import claim_folder, remove_abandoned

_CLAIM = """
import sys
from pathlib import Path
from runnel.streaming.spark_folder import claim_folder
folder = claim_folder(Path(sys.argv[1]))
(folder.path / "blockmgr").mkdir()
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_only_folders_of_ended_processes_are_deleted(tmp_path: Path) -> None:
    parent = tmp_path / "spark"
    command = [sys.executable, "-c", _CLAIM, str(parent)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as living,
    ):
        assert killed.stdout is not None
        assert living.stdout is not None
        abandoned, used = Path(killed.stdout.readline().strip()), Path(living.stdout.readline().strip())
        own = claim_folder(parent)
        assert remove_abandoned(parent) == 0
        killed.kill()
        killed.wait()
        assert remove_abandoned(parent) == 1
        assert (abandoned.exists(), used.exists(), own.path.exists()) == (False, True, True)
        living.kill()
    own.remove()
    assert remove_abandoned(parent) == 1
    assert list(parent.iterdir()) == []


def test_only_the_user_of_the_process_can_read_a_folder(tmp_path: Path) -> None:
    folder = claim_folder(tmp_path / "spark")
    assert stat.S_IMODE(folder.path.stat().st_mode) == stat.S_IMODE(folder.path.parent.stat().st_mode) == 0o700
    folder.remove()


def test_deleting_abandoned_folders_ignores_a_missing_parent(tmp_path: Path) -> None:
    assert remove_abandoned(tmp_path / "spark") == 0
