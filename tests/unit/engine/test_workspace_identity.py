"""A catalog that does not belong to the files of a workspace is refused, and deletes nothing."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.services import PostgreSQL, postgresql

import runnel
from runnel.catalog.store import leases
from runnel.catalog.store.identity import read_identity
from runnel.cli.doctor import examine
from runnel.engine import Engine, workspace_identity
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.upkeep.restore import restore
from runnel.engine.workspace import Workspace, adopt_workspace, create_workspace, open_workspace
from runnel.errors import CorruptDataError, WorkspaceError
from runnel.logs.garbage import TRASH, empty_trash, remove_orphans
from runnel.storage import workspace_marker
from runnel.storage.file_storage import Storage
from runnel.storage.workspace_marker import MARKER, WorkspaceMarker

__all__ = ["postgresql"]

SCRIPT = "register feed Wire; create feed Rock from Wire where title contains 'rock'; subscribe to Rock output log;"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a workspace with some items and a plan whose files are two hours old."""
    _fill(tmp_path / "news")
    return tmp_path / "news"


def _fill(folder: Path, **settings: Any) -> None:
    with runnel.connect(folder, **settings) as engine:
        engine.execute(SCRIPT)
        for number in range(4):
            engine.publish("Wire", [{"id": str(number), "title": "rock"}])
    _age(folder)


def _age(folder: Path) -> None:
    old = time.time() - 7_200
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))


def _data(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for top in ("items", "plans", "matches", "quarantine")
        for path in (folder / top).rglob("*")
        if path.is_file()
    }


def _run_maintenance(workspace: Workspace) -> int:
    with workspace.catalog.write() as connection:
        lease = leases.acquire(connection, 60)
    done = run_maintenance(workspace, lease.epoch, chores=True)
    with workspace.catalog.write() as connection:
        leases.release(connection, lease)
    return done.removed


def _use(folder: Path) -> None:
    """Open the workspace like every command does, and run maintenance, which deletes orphans."""
    workspace = open_workspace(folder)
    try:
        _run_maintenance(workspace)
    finally:
        workspace.close()


def test_missing_catalog_is_refused_and_not_created(folder: Path) -> None:
    before = _data(folder)
    assert len(before) > 4
    (folder / "catalog.sqlite").rename(folder / "elsewhere")
    with pytest.raises(WorkspaceError, match=r"catalog\.sqlite is missing") as refused:
        _use(folder)
    assert "backup" in (refused.value.hint or "")
    assert _data(folder) == before
    assert not (folder / "catalog.sqlite").exists()
    findings = list(examine(folder))
    assert [(finding.check, finding.is_well) for finding in findings][-1] == ("catalog", False), "doctor reports it"
    assert not (folder / "catalog.sqlite").exists()


def test_empty_catalog_file_is_refused(folder: Path) -> None:
    for file in folder.glob("catalog.sqlite*"):
        file.unlink()
    (folder / "catalog.sqlite").touch()
    before = _data(folder)
    with pytest.raises(WorkspaceError, match="there is no catalog in"):
        _use(folder)
    assert _data(folder) == before


@pytest.mark.parametrize("name", ["RUNNEL_CATALOG", "RUNNEL_STORAGE"])
def test_variable_that_is_set_but_empty_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "")
    with pytest.raises(WorkspaceError, match=f"{name} is set but empty"):
        _use(folder)


@pytest.mark.parametrize("is_used", [False, True])
def test_catalog_of_another_workspace_is_refused_and_left_alone(folder: Path, tmp_path: Path, is_used: bool) -> None:
    other = tmp_path / "other"
    if is_used:
        _fill(other)
    else:
        create_workspace(other).close()
    before = _data(folder)
    with pytest.raises(WorkspaceError, match="does not belong to the files") as refused:
        open_workspace(folder, catalog=f"sqlite:///{other / 'catalog.sqlite'}")
    assert "runnel adopt" in (refused.value.hint or "")
    assert _data(folder) == before
    open_workspace(other).close()


def test_catalog_of_another_workspace_in_postgresql_is_refused(
    tmp_path: Path, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, other = postgresql.schema(), postgresql.schema()
    _fill(tmp_path / "one", catalog=schema)
    _fill(tmp_path / "two", catalog=other)
    open_workspace(tmp_path / "one", catalog=schema).close()
    monkeypatch.setenv("RUNNEL_CATALOG", other)
    with pytest.raises(WorkspaceError, match="does not belong to the files"):
        open_workspace(tmp_path / "one")
    monkeypatch.setenv("RUNNEL_CATALOG", postgresql.schema())
    with pytest.raises(WorkspaceError, match="there is no catalog in"):
        open_workspace(tmp_path / "one")


def test_storage_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    storage = tmp_path / "disk"
    storage.mkdir()
    _fill(tmp_path / "news", storage=storage.as_uri())
    assert (storage / MARKER).exists()
    storage.rename(tmp_path / "unplugged")
    with pytest.raises(WorkspaceError, match="are not in") as refused:
        open_workspace(tmp_path / "news", storage=storage.as_uri())
    assert "mounted" in (refused.value.hint or "")


def test_workspace_without_identity_gets_one_if_catalog_and_files_fit(folder: Path) -> None:
    _forget_identity(folder)
    workspace = open_workspace(folder)
    with workspace.catalog.read() as connection:
        identity = read_identity(connection)
    workspace.close()
    assert identity is not None
    assert identity in (folder / MARKER).read_text()


def test_workspace_without_identity_and_with_an_empty_catalog_is_refused(folder: Path, tmp_path: Path) -> None:
    create_workspace(tmp_path / "other").close()
    _forget_identity(tmp_path / "other")
    (folder / MARKER).unlink()
    for file in folder.glob("catalog.sqlite*"):
        file.unlink()
    shutil.copy(tmp_path / "other" / "catalog.sqlite", folder / "catalog.sqlite")
    with pytest.raises(WorkspaceError, match="names no files, but there are files"):
        _use(folder)


def _forget_identity(folder: Path) -> None:
    workspace = open_workspace(folder)
    with workspace.catalog.write() as connection:
        connection.execute(text("delete from counters where name = 'identity'"))
    workspace.close()
    (folder / MARKER).unlink()


def test_init_in_a_folder_with_data_files_is_refused(folder: Path) -> None:
    (folder / "runnel.toml").unlink()
    for file in folder.glob("catalog.sqlite*"):
        file.unlink()
    with pytest.raises(WorkspaceError, match="already holds the files of a workspace"):
        create_workspace(folder)
    assert not (folder / "catalog.sqlite").exists()


def test_interrupted_init_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as dying:
        dying.setattr("runnel.engine.workspace_identity.set_identity", _die)
        with pytest.raises(KeyboardInterrupt):
            create_workspace(tmp_path / "news")
    create_workspace(tmp_path / "news").close()
    open_workspace(tmp_path / "news").close()


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_two_workspaces_cannot_share_a_catalog(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.sqlite'}"
    create_workspace(tmp_path / "one", catalog=url).close()
    with pytest.raises(WorkspaceError, match="belongs to another workspace"):
        create_workspace(tmp_path / "two", catalog=url)


def test_adopt_refuses_a_catalog_that_does_not_fit_unless_forced(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    _fill(other)
    foreign = f"sqlite:///{other / 'catalog.sqlite'}"
    with pytest.raises(WorkspaceError, match="0 are in"):
        adopt_workspace(folder, catalog=foreign)
    (folder / MARKER).write_text("damaged")
    with pytest.raises(CorruptDataError, match=MARKER):
        open_workspace(folder)
    assert adopt_workspace(folder).present == 5
    open_workspace(folder).close()
    adopt_workspace(folder, catalog=foreign, force=True)
    with pytest.raises(WorkspaceError, match="is not the key"):
        open_workspace(folder, catalog=foreign)
    adopt_workspace(folder, catalog=foreign, force=True, new_key=True)
    before = _data(folder)
    workspace = open_workspace(folder, catalog=foreign)
    assert _run_maintenance(workspace) == 0
    workspace.close()
    assert _data(folder) == before, "even a foreign catalog that was adopted with --force deletes nothing"


def test_restored_workspace_has_an_identity_of_its_own(folder: Path, tmp_path: Path) -> None:
    workspace = open_workspace(folder)
    back_up(workspace, tmp_path / "backup")
    workspace.close()
    restore(tmp_path / "backup", tmp_path / "again")
    again = open_workspace(tmp_path / "again")
    assert list(again.items.read(0, 10))
    again.close()
    with pytest.raises(WorkspaceError, match="does not belong"):
        open_workspace(folder, catalog=f"sqlite:///{tmp_path / 'again' / 'catalog.sqlite'}")


def test_restored_workspace_in_postgresql_opens(folder: Path, tmp_path: Path, postgresql: PostgreSQL) -> None:
    workspace = open_workspace(folder)
    back_up(workspace, tmp_path / "backup")
    workspace.close()
    url = postgresql.schema()
    restore(tmp_path / "backup", tmp_path / "again", catalog=url)
    again = open_workspace(tmp_path / "again", catalog=url)
    assert sum(len(batch) for batch in again.items.read(0, 10)) == 4
    again.close()


def test_two_processes_that_create_the_same_workspace_give_it_one_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst order: both find no marker, and one process writes the marker last, the other the identity."""
    first, found_none, marked = threading.current_thread(), threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: create_workspace(tmp_path / "news").close())
    new = workspace_identity.new_identity

    def new_identity() -> str:
        if threading.current_thread() is first:
            other.start()
            found_none.wait(1)  # it may have to wait for this one
        else:
            found_none.set()
            marked.wait(20)
        return new()

    def write_marker(storage: Storage, marker: WorkspaceMarker) -> None:
        workspace_marker.write_marker(storage, marker)
        if threading.current_thread() is first:
            marked.set()
            other.join(1)

    monkeypatch.setattr(workspace_identity, "new_identity", new_identity)
    monkeypatch.setattr(workspace_identity, "write_marker", write_marker)
    (tmp_path / "news").mkdir()
    create_workspace(tmp_path / "news").close()
    other.join(20)
    open_workspace(tmp_path / "news").close()


# --- orphans -------------------------------------------------------------------------------------------------------


def _orphan(folder: Path) -> Path:
    path = folder / "items" / "log" / "orphan.arrow"
    path.write_bytes(b"left by a crash")
    old = time.time() - 7_200
    os.utime(path, (old, old))
    return path


def test_orphans_are_moved_to_the_trash_logged_and_deleted_after_a_day(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orphan, workspace = _orphan(folder), open_workspace(folder)
    before = _data(folder)
    with caplog.at_level(logging.INFO, "runnel"):
        assert remove_orphans(workspace.catalog, workspace.storage, older_than=3_600) == 1
    assert _data(folder) == before - {"items/log/orphan.arrow"}
    assert not orphan.exists()
    assert any("items/log/orphan.arrow" in record.getMessage() for record in caplog.records)
    kept = [path for path in (folder / TRASH).rglob("*") if path.is_file()]
    assert [path.read_bytes() for path in kept] == [b"left by a crash"]
    assert empty_trash(workspace.storage) == 0
    assert empty_trash(workspace.storage, older_than=-1) == 1
    assert not kept[0].exists()
    workspace.close()


def test_garbage_collection_never_deletes_most_files(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    workspace = open_workspace(folder)
    with workspace.catalog.write() as connection:
        connection.execute(text("delete from item_segments"))
    before = _data(folder)
    assert _run_maintenance(workspace) == 0
    assert _data(folder) == before
    assert any("4 of" in record.getMessage() and "kept" in record.getMessage() for record in caplog.records)
    workspace.close()


def test_older_catalog_deletes_no_files_and_doctor_reports_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    older = (folder / "catalog.sqlite").read_bytes()
    with runnel.connect(folder) as engine:
        _more(engine)
    for file in folder.glob("catalog.sqlite*"):
        file.unlink()
    (folder / "catalog.sqlite").write_bytes(older)
    _age(folder)
    before = _data(folder)
    workspace = open_workspace(folder)
    assert _run_maintenance(workspace) == 0
    workspace.close()
    assert _data(folder) == before
    assert any("older than the files" in record.getMessage() for record in caplog.records)
    assert ("history", False) in [(entry.check, entry.is_well) for entry in examine(folder)]
    adopt_workspace(folder)
    assert ("history", True) in [(entry.check, entry.is_well) for entry in examine(folder)]


def _more(engine: Engine) -> None:
    engine.publish("Wire", [{"id": "later", "title": "rock"}])
    _run_maintenance(engine.workspace)


def test_unneeded_plans_are_deleted_and_not_counted_as_orphans(folder: Path) -> None:
    with runnel.connect(folder, orphan_seconds=0.0) as engine:
        for number in range(30):
            engine.execute(f"create or replace feed Rock from Wire where title contains 'rock {number}';")
        workspace = engine.workspace
        with workspace.catalog.write() as connection:
            connection.execute(
                text(
                    "insert into match_segments (lineage, batch, first_sequence, last_sequence, plan, items, matches,"
                    " counters, epoch, committed) select 1, 0, 1, 4, max(version), 4, 0, '{}', 1, 0 from plans"
                )
            )
        folders = len({path.split("/")[1] for path in _data(folder) if path.startswith("plans/")})
        _run_maintenance(workspace)
        kept = len({path.split("/")[1] for path in _data(folder) if path.startswith("plans/")})
    assert kept < folders / 4
    assert not (folder / TRASH).exists()
