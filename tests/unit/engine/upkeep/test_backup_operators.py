"""Backups of roots with operators: users' files are included, generated files are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert
from tests.services import PostgreSQL, postgresql
from tests.unit.engine.upkeep.long_life import LongLife

from runnel.catalog.declared import operators
from runnel.catalog.learned import operator_cache, operator_statistics
from runnel.catalog.logs import undecided
from runnel.catalog.store import schema
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.backup_manifest import read_manifest
from runnel.engine.upkeep.restore import restore
from runnel.engine.workspace import Workspace, open_workspace
from runnel.errors import CorruptDataError, WorkspaceError
from runnel.logs.items.supplements import log_again
from runnel.matching.operators.ask.cache_files import CacheDraft, write_segment
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.model.learned.operator_statistics import OperatorStatistics, OperatorUse
from runnel.model.learned.stream_statistics import ObservedShare
from runnel.model.operator import OperatorDeclaration, Parameter
from runnel.model.undecided import Undecided

__all__ = ["postgresql"]

TABLES = ("undecided", "supplements", "operators", "uses_operators", "operator_learning")
MOB = OperatorDeclaration("mobPattern", 0, "city.vision:mob_pattern", (Parameter("people", "result", "int"),))


@pytest.fixture
def life(tmp_path: Path) -> Iterator[LongLife]:
    """Create a workspace in which operators are used."""
    made = LongLife.make(tmp_path / "workspace")
    made.accept(6)
    made.match(4)
    workspace = made.workspace
    for name, text in (("regions.geojson", "{}"), ("rules/taste.n3", "@prefix."), ("private/token", "s3cret")):
        path = workspace.storage.local(f"operators/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (workspace.folder / "operators" / "same.geojson").symlink_to("regions.geojson")
    (tmp_path / "elsewhere").write_text("not ours")
    (workspace.folder / "operators" / "away").symlink_to(tmp_path / "elsewhere")
    workspace.storage.write("operators/learned/1.json", b"{}")
    workspace.storage.write("operators/declared/1.json", b"[]")
    OperatorEnvironment(databases={"stocks": "postgresql://u:s3cret@db.example/stocks"}).keep(workspace.storage)
    segment = write_segment(workspace.storage, CacheDraft(((b"1" * 16, b"x"),)))
    assert segment is not None
    with workspace.catalog.write() as connection:
        operator_cache.add_segments(connection, [segment])
        operators.register_operator(connection, MOB)
        operators.register_operator(connection, MOB)
        connection.execute(insert(schema.uses_operators).values(feed=2, operator="mobPattern"))
        operator_statistics.note_operators(
            connection,
            OperatorStatistics({"mobPattern 1": OperatorUse(3, 0.5)}, {bytes(range(16)): ObservedShare(2, 1)}),
        )
        undecided.postpone(connection, [Undecided(2, (2, 3), "away\u2028", 1, 10**17), Undecided(3, (2,), "", 2, 7)])
    made.advance(minutes=1)
    assert log_again(workspace.catalog, workspace.storage, epoch=made.epoch, limit=1) == 1
    yield made
    workspace.close()


def _rows(workspace: Workspace) -> dict[str, list[Any]]:
    with workspace.catalog.read() as connection:
        return {
            name: sorted(repr(tuple(row)) for row in connection.execute(schema.metadata.tables[name].select()))
            for name in TABLES
        }


def _below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_operator_files_of_users_are_backed_up_and_restored(life: LongLife, tmp_path: Path) -> None:
    back_up(life.workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again", clock=life.clock)
    again = tmp_path / "again" / "operators"
    assert _below(again) == ["private/token", "regions.geojson", "rules/taste.n3", "same.geojson"]
    assert [(again / name).read_text() for name in ("rules/taste.n3", "same.geojson")] == ["@prefix.", "{}"]
    assert not (again / "same.geojson").is_symlink()


def test_operator_secrets_are_restored_with_private_permissions(life: LongLife, tmp_path: Path) -> None:
    back_up(life.workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again", clock=life.clock)
    private = tmp_path / "again" / "operators" / "private"
    assert [entry.stat().st_mode & 0o777 for entry in (private, private / "token")] == [0o700, 0o600]
    assert (private / "token").read_text() == "s3cret"


def test_files_that_each_run_creates_are_not_backed_up(life: LongLife, tmp_path: Path) -> None:
    back_up(life.workspace, tmp_path / "backup")
    names = _below(tmp_path / "backup")
    assert not any(
        "operators.json" in name or "learned" in name or "cache/" in name or "declared" in name for name in names
    )
    manifest = read_manifest(tmp_path / "backup")
    assert manifest.tables["operator_cache"] == 1, "the table is copied like the others"
    restore(tmp_path / "backup", tmp_path / "again", clock=life.clock)
    assert [path.name for path in (tmp_path / "again" / "private").iterdir()] == ["key.json"], "a key of its own"
    workspace = open_workspace(tmp_path / "again", clock=life.clock)
    with workspace.catalog.read() as connection:
        assert operator_cache.segment_paths(connection) == set()
    with life.workspace.catalog.read() as connection:
        assert operator_cache.cache_totals(connection).answers == 1, "the workspace itself keeps its cached answers"
    workspace.close()


def test_changed_operator_file_is_backed_up_again(life: LongLife, tmp_path: Path) -> None:
    back_up(life.workspace, tmp_path / "backup")
    regions = life.workspace.folder / "operators" / "regions.geojson"
    regions.write_text('{"type": "FeatureCollection"}')
    (life.workspace.folder / "operators" / "rules" / "taste.n3").unlink()
    back_up(life.workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again", clock=life.clock)
    again = tmp_path / "again" / "operators"
    assert (again / "regions.geojson").read_text() == '{"type": "FeatureCollection"}'
    assert not (again / "rules").exists()


def test_damaged_operator_file_in_a_backup_is_refused(life: LongLife, tmp_path: Path) -> None:
    back_up(life.workspace, tmp_path / "backup")
    [kept] = (tmp_path / "backup").glob("snapshots/*/operators/regions.geojson")
    kept.write_text("[]")
    with pytest.raises(CorruptDataError, match="its digest differs"):
        restore(tmp_path / "backup", tmp_path / "again")


def test_operator_files_are_restored_into_the_storage(life: LongLife, tmp_path: Path) -> None:
    back_up(life.workspace, tmp_path / "backup")
    storage = (tmp_path / "store").as_uri()
    restore(tmp_path / "backup", tmp_path / "again", storage=storage, clock=life.clock)
    assert (tmp_path / "store" / "operators" / "regions.geojson").read_text() == "{}"
    assert not (tmp_path / "again" / "operators").exists()
    workspace = open_workspace(tmp_path / "again", clock=life.clock)
    back_up(workspace, tmp_path / "second")
    workspace.close()
    assert any(name.endswith("operators/rules/taste.n3") for name in _below(tmp_path / "second"))
    with pytest.raises(WorkspaceError, match="the storage already contains"):
        restore(tmp_path / "backup", tmp_path / "third", storage=storage, clock=life.clock)


def test_operator_tables_can_be_restored_between_sqlite_and_postgresql(
    life: LongLife, tmp_path: Path, postgresql: PostgreSQL
) -> None:
    before = _rows(life.workspace)
    assert all(before.values()), "every table has something in it"
    back_up(life.workspace, tmp_path / "one")
    url = postgresql.database()
    restore(tmp_path / "one", tmp_path / "pg", catalog=url, clock=life.clock)
    moved = open_workspace(tmp_path / "pg", clock=life.clock, catalog=url)
    assert _rows(moved) == before
    back_up(moved, tmp_path / "two")
    moved.close()
    restore(tmp_path / "two", tmp_path / "lite", clock=life.clock)
    back = open_workspace(tmp_path / "lite", clock=life.clock)
    assert _rows(back) == before
    with back.catalog.write() as connection:
        undecided.postpone(connection, [Undecided(4, (2,), "", 1, 1)])
        last = max(row.id for row in connection.execute(schema.undecided.select()))
        assert operators.register_operator(connection, MOB).version == 3
        assert operator_statistics.learned_operators(connection).operators["mobPattern 1"].calls > 0
    assert last == 3, "assigned ids are not reused"
    back.close()
