"""Backups: consistent during a run, incremental, and verified when they are restored."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy import text
from tests import catalog_rows
from tests.contracts.test_catalog_versions import next_history
from tests.services import PostgreSQL, postgresql
from tests.unit.engine.upkeep.long_life import LongLife
from typer.testing import CliRunner

from runnel.catalog.access.workspace_secrets import workspace_secret
from runnel.catalog.delivery import ledger
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.store import leases, migrations, schema, sequencer
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.identity import IDENTITY
from runnel.cli.backup import backup
from runnel.cli.backup import restore as restore_command
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.backup_manifest import MANIFEST, read_manifest
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.upkeep.restore import restore
from runnel.engine.workspace import Workspace, open_workspace
from runnel.errors import (
    CorruptDataError,
    InputError,
    NewerWorkspaceError,
    NotFoundError,
    RunnelError,
    WorkspaceError,
    WorkspaceExistsError,
)
from runnel.model.feed import FeedKind
from runnel.model.message import Message
from runnel.plan.manifest import PlanManifest

__all__ = ["postgresql"]


@pytest.fixture
def life(tmp_path: Path) -> Iterator[LongLife]:
    """Create a workspace with rows in every table."""
    made = LongLife.make(tmp_path / "workspace", keep_items_days=0, archive_segments=4)
    for _ in range(4):
        for _ in range(3):
            made.accept(3)
            made.match(3)
        made.advance(hours=13)
        run_maintenance(made.workspace, made.epoch)
    made.accept(2)
    workspace = made.workspace
    workspace.storage.write("quarantine/1", b"broken")
    workspace.storage.write("plans/p/manifest.json", _PLAN)
    (workspace.folder / "sheets").mkdir()
    (workspace.folder / "sheets" / "mine.xsl").write_text("<x/>")
    with workspace.catalog.write() as connection:
        connection.execute(
            schema.quarantine.insert().values(
                kind="item", place="here\u2028", reason="broken", path="quarantine/1", created=1
            )
        )
        plan_versions.publish_plan(connection, "plans/p", None, 1)
        workspace_secret(connection, "s")
        ledger.record_messages(connection, [Message(1, 1, 1, 3, 1, "key-1", "digest")])
    yield made
    workspace.close()


_PLAN = PlanManifest("plans/p", "base", {}, {}, {}).to_json()


def _rows(workspace: Workspace) -> dict[str, list[Any]]:
    """Return all rows, without those that differ in a restored workspace."""
    with workspace.catalog.read() as connection:
        return {
            table.name: sorted(repr(tuple(row)) for row in connection.execute(table.select()) if row[0] != IDENTITY)
            for table in schema.metadata.sorted_tables
            if table.name not in ("leases", "lineages")
        }


def _continue_work(life: LongLife, workspace: Workspace) -> LongLife:
    """Continue work in a restored workspace."""
    with workspace.catalog.write() as connection:
        epoch = leases.acquire(connection, 1e9).epoch
        assert epoch > life.epoch, "epochs continue, so an old runner is fenced"
        assert match_segments.current_lineage(connection) is None, "there is no checkpoint to continue from"
        lineage = match_segments.start_lineage(connection, "test", reason="test")
        matched = match_segments.matched_upto(connection)
        last = sequencer.last_sequence(connection)
    assert lineage.after_sequence == matched
    copy = replace(
        life,
        workspace=workspace,
        epoch=epoch,
        lineage=lineage.id,
        batch=-1,
        times={n: time for n, time in life.times.items() if n <= last},
        plans={n: plan for n, plan in life.plans.items() if n <= matched},
    )
    copy.check()
    copy.match(100)
    copy.accept(5)
    copy.match(100)
    copy.advance(days=3)
    run_maintenance(workspace, epoch, at_least=1)
    copy.check()
    return copy


def test_restored_workspace_is_identical_and_can_continue(life: LongLife, tmp_path: Path) -> None:
    made = back_up(life.workspace, tmp_path / "backup")
    assert made.last_sequence == 38
    restored = restore(tmp_path / "backup", tmp_path / "again", clock=life.clock, key=life.workspace.key.read())
    assert (restored.files, restored.last_sequence) == (made.files, 38)
    workspace = open_workspace(tmp_path / "again", clock=life.clock)
    assert _rows(workspace) == _rows(life.workspace)
    assert workspace.storage.read("quarantine/1") == b"broken"
    assert (workspace.folder / "sheets" / "mine.xsl").read_text() == "<x/>"
    with workspace.catalog.write() as connection, life.workspace.catalog.write() as original:
        assert sequencer.workspace_number(connection) == sequencer.workspace_number(original), "keys stay the same"
        assert ledger.next_number(connection, 1) == 2
        assert plan_versions.publish_plan(connection, "plans/p", None, 1) == plan_versions.publish_plan(
            original, "plans/p", None, 1
        )
    _continue_work(life, workspace)
    workspace.close()


def test_second_backup_copies_only_new_files(life: LongLife, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    first = back_up(life.workspace, target)
    assert (first.copied, back_up(life.workspace, target).copied) == (first.files, 0)
    life.accept(1)
    second = back_up(life.workspace, target)
    assert (second.copied, second.files) == (1, first.files + 1)
    life.match(10)
    life.advance(days=2)
    run_maintenance(life.workspace, life.epoch)
    third = back_up(life.workspace, target)
    assert 0 < third.copied < third.files
    assert not any(name.startswith("items/log/") for name in read_manifest(target).files), "those were merged"
    kept = {path.relative_to(target / "files").as_posix() for path in (target / "files").rglob("*") if path.is_file()}
    assert kept == read_manifest(target).files.keys()
    assert len(list((target / "snapshots").iterdir())) == 1
    workspace = restore(target, tmp_path / "again", clock=life.clock).folder
    life.check(open_workspace(workspace, clock=life.clock))


def test_linked_backup_shares_its_files(life: LongLife, tmp_path: Path) -> None:
    back_up(life.workspace, tmp_path / "backup", link=True)
    [first, *_] = read_manifest(tmp_path / "backup").files
    assert (tmp_path / "backup" / "files" / first).samefile(life.workspace.storage.local(first))


def test_backup_during_a_run_is_consistent(life: LongLife, tmp_path: Path) -> None:
    ended = threading.Event()
    problems: list[BaseException] = []
    hasty = replace(life.workspace, settings=life.workspace.settings.model_copy(update={"orphan_seconds": 0.0}))

    def work() -> None:
        try:
            turns = 0
            while not ended.is_set() and turns < 400:
                turns += 1
                life.accept(2)
                life.match(3)
                life.advance(minutes=20)
                if turns % 10 == 0:
                    run_maintenance(hasty, life.epoch, at_least=2)
        except BaseException as error:
            problems.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        lasts = []
        for number in range(3):
            lasts.append(back_up(life.workspace, tmp_path / "backup").last_sequence)
            restore(tmp_path / "backup", tmp_path / f"copy-{number}", clock=life.clock)
    finally:
        ended.set()
        worker.join()
    assert problems == []
    assert lasts == sorted(lasts)
    for number in range(3):
        workspace = open_workspace(tmp_path / f"copy-{number}", clock=life.clock)
        _continue_work(life, workspace)
        workspace.close()


def test_backup_can_be_restored_to_sqlite_and_postgresql(
    life: LongLife, tmp_path: Path, postgresql: PostgreSQL
) -> None:
    back_up(life.workspace, tmp_path / "one")
    url = postgresql.database()
    restore(tmp_path / "one", tmp_path / "pg", catalog=url, clock=life.clock, key=life.workspace.key.read())
    assert not (tmp_path / "pg" / "catalog.sqlite").exists()
    moved = open_workspace(tmp_path / "pg", clock=life.clock, catalog=url)
    assert _rows(moved) == _rows(life.workspace)
    with pytest.raises(WorkspaceError, match="is in use"):
        restore(tmp_path / "one", tmp_path / "other", catalog=url)
    copy = _continue_work(life, moved)
    back_up(moved, tmp_path / "two")
    restore(tmp_path / "two", tmp_path / "lite", clock=life.clock, key=life.workspace.key.read())
    back = open_workspace(tmp_path / "lite", clock=life.clock)
    assert _rows(back) == _rows(moved)
    with back.catalog.write() as value, moved.catalog.write() as other:
        assert plan_versions.publish_plan(value, "plans/p", None, 1) == plan_versions.publish_plan(
            other, "plans/p", None, 1
        )
    copy.check(back)
    moved.close()
    back.close()


def _add_file_outside(manifest: dict[str, Any]) -> None:
    manifest["files"]["../x"] = {"size": 1, "sha256": ""}


def _age(manifest: dict[str, Any]) -> None:
    """Change the manifest to a format from before the first release."""
    manifest.update(format=2, catalog_version=18)
    del manifest["catalog_fingerprint"]


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _first(target: Path, pattern: str) -> Path:
    return sorted(path for path in target.glob(pattern) if path.is_file())[0]


@pytest.mark.parametrize(
    ("harm", "error", "said"),
    [
        (lambda at: _damage(_first(at, "files/items/**/*.parquet")), CorruptDataError, "its digest differs"),
        (lambda at: _damage(_first(at, "snapshots/*/catalog/seen.parquet")), CorruptDataError, "its digest differs"),
        (lambda at: _first(at, "files/matches/**/*").unlink(), CorruptDataError, "is missing"),
        (lambda at: _first(at, "snapshots/*/catalog/feeds.parquet").unlink(), CorruptDataError, "is missing"),
        (
            lambda at: (at / MANIFEST).write_bytes((at / MANIFEST).read_bytes()[:-9]),
            CorruptDataError,
            "cannot be read",
        ),
        (lambda at: (at / MANIFEST).unlink(), NotFoundError, "does not contain a backup"),
        (lambda at: _edit(at, lambda manifest: manifest.update(format=99)), NewerWorkspaceError, "newer"),
        (lambda at: _edit(at, lambda manifest: manifest.update(catalog_version=99)), NewerWorkspaceError, "newer"),
        (
            lambda at: _edit(at, lambda manifest: manifest.update(catalog_version=0)),
            WorkspaceError,
            "development version",
        ),
        (lambda at: _edit(at, _age), WorkspaceError, "development version"),
        (
            lambda at: _edit(at, lambda manifest: manifest["files"].update({"../x": {"size": 1, "sha256": ""}})),
            CorruptDataError,
            "x",
        ),
        (
            lambda at: _edit(at, lambda manifest: manifest.update(snapshot="../..")),
            CorruptDataError,
            "cannot be read",
        ),
        (lambda at: _edit(at, lambda manifest: manifest["tables"].update(feeds=77)), CorruptDataError, "rows"),
    ],
)
def test_damaged_backup_is_refused_and_leaves_no_files(
    life: LongLife, tmp_path: Path, harm: Callable[[Path], None], error: type[RunnelError], said: str
) -> None:
    target = tmp_path / "backup"
    back_up(life.workspace, target)
    harm(target)
    with pytest.raises(error, match=said):
        restore(target, tmp_path / "again")
    assert not (tmp_path / "again").exists() or list((tmp_path / "again").iterdir()) == []


def _edit(target: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((target / MANIFEST).read_bytes())
    change(manifest)
    (target / MANIFEST).write_text(json.dumps(manifest))


def test_unfinished_backup_is_refused_and_can_be_completed(
    life: LongLife, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup"

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("runnel.engine.upkeep.backup._replace", die)
        with pytest.raises(KeyboardInterrupt):
            back_up(life.workspace, target)
    with pytest.raises(CorruptDataError, match="is incomplete"):
        restore(target, tmp_path / "again")
    back_up(life.workspace, target)
    # Death in a later one leaves the earlier one as it was.
    life.accept(3)
    with monkeypatch.context() as patched:
        patched.setattr("runnel.engine.upkeep.backup._replace", die)
        with pytest.raises(KeyboardInterrupt):
            back_up(life.workspace, target)
    assert restore(target, tmp_path / "again", clock=life.clock).last_sequence == 38


def test_unsuitable_backup_and_restore_folders_are_refused(life: LongLife, tmp_path: Path) -> None:
    other = tmp_path / "full"
    other.mkdir()
    (other / "letter.txt").touch()
    for target, value in (
        (life.workspace.folder / "x", "nor be inside it"),
        (tmp_path, "must not contain the workspace"),
        (other, "contains other files"),
    ):
        with pytest.raises(InputError, match=value):
            back_up(life.workspace, target)
    back_up(life.workspace, tmp_path / "backup")
    stranger = LongLife.make(tmp_path / "stranger")
    with pytest.raises(InputError, match="another workspace"):
        back_up(stranger.workspace, tmp_path / "backup")
    stranger.workspace.close()
    for folder in (life.workspace.folder, other):
        with pytest.raises(WorkspaceExistsError):
            restore(tmp_path / "backup", folder)


def test_backup_of_an_older_version_is_restored_and_upgraded(
    life: LongLife, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, first = tmp_path / "backup", "First"
    with life.workspace.catalog.write() as connection:
        for name in (first, "Second"):
            catalog_rows.add_feed(connection, name, FeedKind.SOURCE, f"register feed {name};")
    back_up(life.workspace, target)
    later = next_history()
    [step] = later.steps
    ranked = replace(step, rows=(f"update feeds set rank = 7 where name = '{first}'",))
    monkeypatch.setattr(migrations, "HISTORY", replace(later, steps=(ranked,)))
    restore(target, tmp_path / "again", clock=life.clock, key=life.workspace.key.read())
    workspace = open_workspace(tmp_path / "again", clock=life.clock)
    assert workspace.catalog.version() == 2
    with workspace.catalog.read() as connection:
        rows = connection.execute(text("select name, rank, color from feeds")).all()
        assert {(row.rank, row.color) for row in rows if row.name == first} == {(7, None)}
        assert {row.rank for row in rows if row.name != first} == {0}, "the default of a column that was added"
        assert connection.execute(text("select count(*) from notes")).scalar_one() == 0
    assert _rows(workspace) == _rows(life.workspace)
    workspace.close()


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(backup)
    app.command("restore")(restore_command)
    return app


def test_backup_and_restore_commands(life: LongLife, tmp_path: Path) -> None:
    run = CliRunner()
    made = run.invoke(_app(), ["backup", str(tmp_path / "backup"), "-w", str(life.workspace.folder), "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["last_sequence"] == 38
    result = run.invoke(_app(), ["restore", str(tmp_path / "backup"), str(tmp_path / "again")])
    assert result.exit_code == 0, result.output
    assert "restored" in result.stdout
    again = run.invoke(_app(), ["restore", str(tmp_path / "backup"), str(tmp_path / "again")])
    assert again.exit_code == 4
    catalog = Catalog(f"sqlite:///{tmp_path / 'again' / 'catalog.sqlite'}")
    with catalog.read() as connection:
        assert sequencer.last_sequence(connection) == 38
    catalog.close()
