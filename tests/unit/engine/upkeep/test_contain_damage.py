"""Damaged files are detected, named in errors, and contained so that work can continue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.unit.engine.upkeep.long_life import LongLife

import runnel
from runnel.catalog.declared import feeds
from runnel.catalog.declared.stylesheets import kept_path
from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import match_segments, plan_versions, quarantine
from runnel.catalog.logs.quarantine import FILE
from runnel.catalog.store import leases
from runnel.cli.doctor import examine
from runnel.delivery.shape_messages import MessageShaper
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.contain_damage import Containment, contain_damage
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.errors import BrokenDocumentError, CorruptDataError, DeliveryError
from runnel.matching.operators.ask.cache_files import CacheDraft, open_segment, write_segment
from runnel.matching.operators.ask.question_keys import KEY_BYTES
from runnel.plan.store import PlanVersion, forget_parts, load
from runnel.settings import Settings
from runnel.storage.checksums import take_damaged
from runnel.storage.file_storage import FileStorage

KINDS = ["item segment", "archived items", "matches", "merged matches", "query index"]


@pytest.fixture
def life(tmp_path: Path) -> Iterator[LongLife]:
    """Create a workspace with fresh and archived items, and fresh and merged matches with an index."""
    made = LongLife.make(tmp_path / "workspace", keep_items_days=0, archive_segments=8, orphan_seconds=3600.0)
    for _ in range(4):
        made.accept(3)
        made.match(3)
    made.advance(days=2)
    run_maintenance(made.workspace, made.epoch, at_least=1, asked=[1, 2, 3])
    for _ in range(3):
        made.accept(3)
        made.match(3)
    made.accept(2)
    yield made
    made.workspace.close()


def _path(life: LongLife, kind: str) -> str:
    statement = {
        "item segment": "select path from item_segments where retired is null and tier = 'log' order by id desc",
        "archived items": "select path from item_segments where retired is null and tier = 'day'",
        "matches": "select path from match_parts where retired is null and level = 0",
        "merged matches": "select path from match_parts where retired is null and level > 0",
        "query index": "select by_query from match_parts where retired is null and by_query is not null",
    }[kind]
    with life.workspace.catalog.read() as connection:
        return str(connection.execute(text(statement)).scalars().first())


def _flip(path: Path, position: int) -> None:
    """Flip one bit, like a failing disk does."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << (position % 8)
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


def _truncate(path: Path, position: int) -> None:
    os.truncate(path, position)


def _read_all(life: LongLife) -> None:
    list(life.workspace.items.read(0, 1 << 40))
    list(life.workspace.matches.read(0, 1 << 40))
    life.workspace.matches.of_queries([1, 2, 3], 0, 1 << 40)


@pytest.mark.parametrize("damage", [_flip, _truncate])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_at_any_position_of_a_file_is_detected(
    life: LongLife, kind: str, damage: Callable[[Path, int], None]
) -> None:
    path = _path(life, kind)
    local = life.workspace.storage.local(path)
    whole = local.read_bytes()
    _read_all(life)
    for position in range(0, len(whole), max(1, len(whole) // 61)):
        damage(local, position)
        if kind == "query index":  # the matches themselves say the same
            life.check()
        else:
            with pytest.raises(CorruptDataError, match="is damaged") as raised:
                _read_all(life)
            assert path in raised.value.message
        assert path in take_damaged(life.workspace.storage)
        deep = {entry.check: entry for entry in examine(life.workspace.folder, deep=True)}["files"]
        assert not deep.is_well
        assert path in deep.detail
        local.write_bytes(whole)
    _read_all(life)


def test_doctor_detects_a_changed_file_size_without_reading_the_file(life: LongLife) -> None:
    assert {entry.check: entry for entry in examine(life.workspace.folder)}["files"].is_well
    path = _path(life, "archived items")
    _truncate(life.workspace.storage.local(path), 9)
    files = {entry.check: entry for entry in examine(life.workspace.folder)}["files"]
    assert not files.is_well
    assert path in files.detail


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_is_contained_and_work_continues(life: LongLife, kind: str) -> None:
    path = _path(life, kind)
    workspace = life.workspace
    if kind in ("archived items", "merged matches"):  # what they were merged from is gone
        life.advance(days=1)
        run_maintenance(workspace, life.epoch, at_least=1)
        path = _path(life, kind)
    _flip(workspace.storage.local(path), 40)
    assert contain_damage(workspace, life.epoch, path) is Containment.FILE
    _read_all(life)
    with workspace.catalog.read() as connection:
        [thing] = [
            quarantined_row
            for quarantined_row in quarantine.quarantined_rows(connection)
            if quarantined_row.kind == FILE
        ]
        assert path in quarantine.quarantined_paths(connection), "the file is kept for inspection"
    assert thing.path == path
    assert {entry.check: entry for entry in examine(workspace.folder, deep=True)}["files"].is_well
    assert workspace.storage.local(path).exists()
    if kind == "query index":
        life.check()
    life.accept(4)
    life.match(100)
    life.advance(days=3)
    assert run_maintenance(workspace, life.epoch, at_least=1, chores=True).finished
    _read_all(life)
    assert workspace.storage.local(path).exists(), "it is not an orphan"
    assert contain_damage(workspace, life.epoch, path) is None, "there is nothing more to do"


@pytest.mark.parametrize("kind", ["archived items", "merged matches"])
def test_damaged_file_is_replaced_by_the_files_from_which_it_was_merged(life: LongLife, kind: str) -> None:
    path = _path(life, kind)
    _flip(life.workspace.storage.local(path), 40)
    assert contain_damage(life.workspace, life.epoch, path) is Containment.FILE
    life.check()
    with life.workspace.catalog.read() as connection:
        assert not [
            quarantined_row
            for quarantined_row in quarantine.quarantined_rows(connection)
            if quarantined_row.kind == FILE
        ]
    life.advance(days=1)
    run_maintenance(life.workspace, life.epoch, at_least=1)
    life.check()
    assert {entry.check: entry for entry in examine(life.workspace.folder, deep=True)}["files"].is_well


def test_lost_items_that_were_not_matched_are_accepted_again(life: LongLife) -> None:
    workspace = life.workspace
    path = _path(life, "item segment")
    with workspace.catalog.read() as connection:
        before = connection.execute(text("select count(*) from seen")).scalar_one()
        assert match_segments.matched_upto(connection) == workspace.items.last_sequence() - 2
    _flip(workspace.storage.local(path), 40)
    contain_damage(workspace, life.epoch, path)
    with workspace.catalog.read() as connection:
        assert connection.execute(text("select count(*) from seen")).scalar_one() == before - 2


def test_intact_file_and_unavailable_storage_are_not_contained(life: LongLife, tmp_path: Path) -> None:
    path = _path(life, "item segment")
    assert contain_damage(life.workspace, life.epoch, path) is None
    life.workspace.folder.rename(tmp_path / "unplugged")
    life.workspace.folder.mkdir()
    try:
        assert contain_damage(life.workspace, life.epoch, path) is None
    finally:
        life.workspace.folder.rmdir()
        (tmp_path / "unplugged").rename(life.workspace.folder)
    life.check()


def test_backup_of_a_damaged_file_is_refused_by_name(life: LongLife, tmp_path: Path) -> None:
    path = _path(life, "archived items")
    _flip(life.workspace.storage.local(path), 40)
    with pytest.raises(CorruptDataError, match="is damaged") as raised:
        back_up(life.workspace, tmp_path / "backup")
    assert path in raised.value.message


def test_quarantined_document_is_checked(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "workspace") as engine:
        engine.execute("register feed Wire;")
        with engine.workspace.catalog.read() as connection:
            [feed] = feeds.live_feeds(connection)
        engine._acquirer.quarantine(feed, [BrokenDocumentError("not XML")], quarantine.DOCUMENT, b"<rss")
        with engine.workspace.catalog.read() as connection:
            [path] = quarantine.quarantined_paths(connection)
        _flip(engine.workspace.storage.local(path), 2)
        files = {entry.check: entry for entry in examine(engine.workspace.folder, deep=True)}["files"]
    assert not files.is_well
    assert path in files.detail


def test_declaring_over_a_damaged_plan_compiles_it_again(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "workspace") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output log;")
        workspace = engine.workspace
        with workspace.catalog.read() as connection:
            before = plan_versions.current_plan(connection)
        assert before is not None
        _flip(workspace.storage.local(f"{before.base}/manifest.json"), 70)
        forget_parts()
        assert not {entry.check: entry for entry in examine(workspace.folder)}["plan"].is_well
        engine.execute("create feed Jazz from Wire where title contains 'jazz'; subscribe to Jazz output log;")
        with workspace.catalog.read() as connection:
            after = plan_versions.current_plan(connection)
        assert after is not None
        assert after.base != before.base
        assert load(workspace.storage, PlanVersion.of(after)).base.manifest.counts["queries"] == 2
        assert {entry.check: entry for entry in examine(workspace.folder, deep=True)}["plan"].is_well
        with workspace.catalog.write() as connection:
            lease = leases.acquire(connection, 60)
        assert contain_damage(workspace, lease.epoch, after.base) is None, "it is sound"
        _flip(workspace.storage.local(f"{after.base}/arrays.npy"), 300)
        assert contain_damage(workspace, lease.epoch, f"{after.base}/arrays.npy") is Containment.PLAN
        assert {entry.check: entry for entry in examine(workspace.folder, deep=True)}["plan"].is_well


def test_damaged_stylesheet_is_not_applied(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    settings = Settings.load(tmp_path)
    path = kept_path(b"<sheet/>")
    storage.write(path, b"<sheet/>")
    assert MessageShaper(storage, settings, None)._read_stylesheet(path) == b"<sheet/>"
    _flip(storage.local(path), 3)
    with pytest.raises(DeliveryError, match=f"{path} is damaged"):
        MessageShaper(storage, settings, None)._read_stylesheet(path)


@pytest.mark.parametrize("damage", [_flip, _truncate])
def test_damaged_cached_answers_of_operators_are_not_used(
    life: LongLife, damage: Callable[[Path, int], None]
) -> None:
    storage = life.workspace.storage
    segment = write_segment(storage, CacheDraft(tuple((bytes([n]) * KEY_BYTES, b"[]") for n in range(20))))
    assert segment is not None
    with life.workspace.catalog.write() as connection:
        operator_cache.add_segments(connection, [segment])
    local = storage.local(segment.path)
    whole = local.read_bytes()
    assert open_segment(storage, segment.path) is not None
    for position in range(0, len(whole), max(1, len(whole) // 61)):
        damage(local, position)
        assert open_segment(storage, segment.path) is None
        assert segment.path in take_damaged(storage)
        local.write_bytes(whole)
    _flip(local, 9)
    assert contain_damage(life.workspace, life.epoch, segment.path) is Containment.FILE
    with life.workspace.catalog.read() as connection:
        assert operator_cache.live_segments(connection) == [], "operators are called again"
