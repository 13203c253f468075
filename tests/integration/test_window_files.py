"""Damaged, truncated and missing files of windows: they are reported, filled again, and never give a wrong answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.gated_runs import stop, verify
from tests.integration.in_process import InProcess, matched_ids
from tests.integration.test_joins_of_workspaces import files_of_windows, filled_windows, texts

import runnel
from runnel.cli.doctor import Finding, examine
from runnel.engine import Engine
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.upkeep.restore import restore
from runnel.streaming.worker.progress_mark import place_mark, read_reports

SCRIPT = """
register feed News;
register feed Photos;
create feed Shown from News as $n join last 3 days on Photos as $photos with $n[title = window.title];
create feed Paired from News as $n join last 2 items on Photos as $photos with $n[title similar window.title];
subscribe to Shown output log;
subscribe to Paired output log;
"""
DAMAGE = ("flipped", "truncated", "empty", "missing")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace") as opened:
        opened.execute(SCRIPT)
        yield opened


@pytest.fixture
def run(engine: Engine) -> Iterator[InProcess]:
    opened = InProcess(engine)
    for number in range(3):
        engine.publish("Photos", texts(f"photo {number}"))
        engine.publish("News", texts(f"photo {number}"))
        opened.match()
    yield opened
    opened.close()


def damage(path: Path, how: str) -> None:
    """Damage a file in one of the ways of `DAMAGE`, which its time of modification may not show."""
    status = path.stat()
    match how:
        case "flipped":
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0x10
            path.write_bytes(data)
        case "truncated":
            os.truncate(path, status.st_size // 2)
        case "empty":
            os.truncate(path, 0)
        case _:
            path.unlink()
            return
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def paths(engine: Engine) -> list[Path]:
    return [engine.workspace.storage.local(each.path) for each in files_of_windows(engine)]


def window_finding(engine: Engine, *, deep: bool = True, repair: bool = False) -> Finding:
    findings = examine(engine.workspace.folder, deep=deep, repair=repair)
    return next(each for each in findings if each.check == "windows")


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("position", [0, 1, -1])
def test_damaged_file_is_filled_again(engine: Engine, run: InProcess, how: str, position: int) -> None:
    place_mark(engine.workspace.storage)
    before = set(paths(engine))
    damage(paths(engine)[position], how)
    engine.publish("News", [{"id": f"again {number}", "title": f"photo {number}"} for number in range(3)])
    run.match()
    verify(engine)
    assert matched_ids(engine, "Shown")[3:] == ["again 0", "again 1", "again 2"]
    assert matched_ids(engine, "Paired")[3:] == ["again 1", "again 2"]
    reports, _ = read_reports(engine.workspace.storage, 0)
    assert "so all windows are filled again" in reports[0][1]
    assert not before & set(paths(engine))
    assert len(filled_windows(engine)) == 2


@pytest.mark.parametrize("how", DAMAGE)
def test_file_that_is_damaged_when_it_is_merged_is_filled_again(engine: Engine, run: InProcess, how: str) -> None:
    damage(paths(engine)[-1], how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.streaming.window_store._FAN_IN", 2)
        run_maintenance(engine.workspace, run.epoch)
    assert (paths(engine), filled_windows(engine)) == ([], [])
    engine.publish("News", [{"id": "again", "title": "photo 0"}])
    run.match()
    verify(engine)


@pytest.mark.parametrize("how", DAMAGE)
def test_doctor_reports_and_drops_damaged_files(engine: Engine, run: InProcess, how: str) -> None:
    number = len(paths(engine))
    assert window_finding(engine) == Finding("windows", True, f"{number} files with the items of windows exist")
    damage(paths(engine)[0], how)
    found = window_finding(engine, deep=how == "flipped")
    assert found.detail.startswith(f"1 of {number} files are damaged or missing")
    assert "no action needed" in str(found.hint)
    repaired = window_finding(engine, repair=True)
    assert repaired.detail.startswith(f"dropped {number} files, of which 1 were damaged or missing")
    assert repaired.hint is None
    assert files_of_windows(engine) == []
    engine.publish("News", [{"id": "again", "title": "photo 0"}])
    run.match()
    verify(engine)
    assert window_finding(engine).hint is None


@pytest.mark.parametrize("how", [None, *DAMAGE])
def test_backup_has_the_sound_files(engine: Engine, run: InProcess, tmp_path: Path, how: str | None) -> None:
    """A workspace can be backed up with a damaged window. The restored one fills it again."""
    if how is not None:
        damage(paths(engine)[0], how)
    stop(engine, run)
    back_up(engine.workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with runnel.connect(tmp_path / "restored") as restored:
        assert all(path.exists() for path in paths(restored)) == (how is None)
        again = InProcess(restored)
        restored.publish("News", [{"id": "again", "title": "photo 0"}])
        again.match()
        again.close()
        verify(restored)
        assert matched_ids(restored, "Shown")[-1] == "again"
