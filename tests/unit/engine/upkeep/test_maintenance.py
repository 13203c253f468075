"""Maintenance: reads equal a model after any history, needed data stays, and a crash at any point loses nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import Connection, text
from tests import catalog_rows
from tests.log_upkeep import collect_garbage
from tests.services import PostgreSQL, postgresql
from tests.unit.engine.upkeep.long_life import FEED, LongLife

from runnel.catalog.declared import feeds
from runnel.catalog.delivery import ledger, receipts
from runnel.catalog.learned import stream_statistics
from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import plan_versions, quarantine
from runnel.catalog.logs.match_segments import match_segments
from runnel.catalog.logs.quarantine import Quarantined
from runnel.catalog.polling import source_files
from runnel.catalog.polling.source_files import DocumentState, SourceFile
from runnel.catalog.store.connection import Catalog
from runnel.engine.upkeep.maintenance import MaintenanceReport, run_maintenance
from runnel.engine.workspace import Workspace, open_workspace
from runnel.errors import FencedError, NotFoundError
from runnel.model.feed import FeedKind
from runnel.model.item import Item, attributes_of
from runnel.model.learned.stream_statistics import StreamSample
from runnel.model.message import Message, MessageState
from runnel.storage.file_storage import FileStorage

__all__ = ["postgresql"]

DAYS = 2


class _Life(RuleBasedStateMachine):
    """Runs the steps of a workspace's life in any order."""

    @initialize(orphan_seconds=st.sampled_from([0.0, 3600.0]))
    def begin(self, orphan_seconds: float) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="runnel-life-"))
        self.life = LongLife.make(
            self.folder / "workspace", keep_items_days=DAYS, archive_segments=3, orphan_seconds=orphan_seconds
        )

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def accept(self, counts: list[int]) -> None:
        for count in counts:
            self.life.accept(count)

    @rule(counts=st.lists(st.integers(1, 6), min_size=1, max_size=4), parts=st.integers(1, 2))
    def match(self, counts: list[int], parts: int) -> None:
        for count in counts:
            self.life.match(count, parts)

    @rule()
    def change_plan(self) -> None:
        self.life.plan += 1

    @rule()
    def new_lineage(self) -> None:
        self.life.new_lineage()

    @rule()
    def deliver(self) -> None:
        self.life.deliver()

    @rule(minutes=st.sampled_from([1, 40, 60 * 7, 60 * 24, 60 * 30, -90]))
    def advance(self, minutes: int) -> None:
        self.life.advance(minutes=minutes)

    @rule(at_least=st.sampled_from([1, 2, None]), chores=st.booleans())
    def tidy(self, at_least: int | None, chores: bool) -> None:
        assert run_maintenance(self.life.workspace, self.life.epoch, at_least=at_least, chores=chores).finished

    @rule()
    def replay(self) -> None:
        life = self.life
        if life.last_batch is not None and life.last_batch[0].lineage == life.lineage:
            assert not life.commit_again(), "a committed batch is recognized"
            first = life.last_batch[0].first_sequence
            assert life.workspace.items.slices(first - 1, life.matched, rows=9), "its items can be read"

    @rule(after=st.integers(0, 60), length=st.integers(0, 40))
    def read(self, after: int, length: int) -> None:
        if after == 0 or after >= self.life.retained:
            self.life.check(after=after, upto=after + length)
        else:
            with pytest.raises(NotFoundError, match="no longer kept"):
                list(self.life.workspace.items.read(after, after + length + 1))
            with pytest.raises(NotFoundError, match="no longer kept"):
                self.life.workspace.matches.of_queries([2], after, after + length + 1)

    @invariant()
    def everything_is_readable(self) -> None:
        if hasattr(self, "life"):
            self.life.check()
            young = [n for n, time in self.life.times.items() if time >= (self.life.clock() - DAYS * 86400) * 1e6]
            assert self.life.retained < min(young, default=1 << 60), "recent items are kept"

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.workspace.close()
            shutil.rmtree(self.folder)


TestLife = _Life.TestCase
TestLife.settings = settings(max_examples=15, stateful_step_count=16, deadline=None, derandomize=True)


# --- merging -------------------------------------------------------------------------------------------------------


@pytest.fixture
def life(tmp_path: Path) -> Iterator[LongLife]:
    made = LongLife.make(tmp_path / "workspace", keep_items_days=0, archive_segments=8, orphan_seconds=3600.0)
    yield made
    made.workspace.close()


def _live(life: LongLife, prefix: str) -> int:
    with life.workspace.catalog.read() as connection:
        table = {"items": "item_segments", "matches": "match_parts"}[prefix]
        return int(connection.execute(text(f"select count(*) from {table} where retired is null")).scalar_one())


def _day_of_work(life: LongLife, *, every: int = 30) -> None:
    for _ in range(24 * 60 // every):
        life.accept(2)
        life.match(2)
        life.advance(minutes=every)
        run_maintenance(life.workspace, life.epoch)


def test_days_are_merged_into_few_files_with_few_rewrites(life: LongLife, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(
        "runnel.logs.items.archive.write_parquet", _counted(written, "runnel.logs.items.archive.write_parquet")
    )
    for _ in range(3):
        _day_of_work(life)
    life.check()
    assert (_live(life, "items"), _live(life, "matches")) == (3, 3), "one file per completed day"
    # 48 segments a day: 24 hours, the day, and whatever had to be merged within an hour.
    assert len(written) <= 3 * (24 + 1 + 24)
    with life.workspace.catalog.read() as connection:
        assert len(match_segments(connection)) < 15, "rows of segments are merged too"
        assert manifest.segments_between(connection, 0, 1 << 60)[0].level == 3
    life.deliver()
    assert not life.commit_again()


def _counted(calls: list[str], name: str) -> Any:
    module, function = name.rsplit(".", 1)
    original = getattr(sys.modules[module], function)

    def call(storage: Any, path: str, *rest: Any) -> Any:
        calls.append(path)
        return original(storage, path, *rest)

    return call


def test_reader_with_an_old_file_list_can_continue(life: LongLife) -> None:
    impatient = replace(life.workspace, settings=life.workspace.settings.model_copy(update={"orphan_seconds": 0.0}))
    for _ in range(90):
        life.accept(1)
        life.match(1)
    items, rows = life.workspace.items.read(0, 90), life.workspace.matches.read(0, 90)
    first_item, first_rows = next(items), next(rows)
    life.advance(days=2)
    done = run_maintenance(impatient, life.epoch)
    assert (done.archived, done.compacted, done.removed) == (90, 90, 180)
    assert [int(n) for batch in (first_item, *items) for n in batch.sequences] == list(range(1, 91))
    assert len([n for entry in (first_rows, *rows) for n in entry.sequences]) == len(
        [n for value in life.workspace.matches.read(0, 90) for n in value.sequences]
    )


def test_only_subscribed_queries_are_indexed_and_the_index_is_used(
    life: LongLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        life.accept(3)
        life.match(3)
    life.advance(days=2)
    run_maintenance(life.workspace, life.epoch, asked=[5])
    [index] = life.workspace.storage.local("matches/day").glob("*/*.queries.arrow")
    expected = life.workspace.matches.of_queries([2, 3, 5], 10, 80)
    scanned: list[Any] = []

    def scan(log: Any, part: Any, wanted: Any, *rest: Any) -> dict[int, Any]:
        scanned.append(wanted.tolist())
        return {}

    monkeypatch.setattr("runnel.logs.matches.match_log.MatchLog._scan", scan)
    indexed = life.workspace.matches.of_queries([2, 3, 5], 10, 80)
    assert {query: values.tolist() for query, values in indexed.items()} == {
        query: values.tolist() for query, values in expected.items()
    }
    assert scanned == []
    life.workspace.matches.of_queries([2, 4], 10, 80)
    assert scanned == [[4]], "files without an index are scanned"
    monkeypatch.undo()
    index.write_bytes(b"damaged")
    damaged = life.workspace.matches.of_queries([2, 3, 5], 10, 80)
    assert {query: values.tolist() for query, values in damaged.items()} == {
        query: values.tolist() for query, values in expected.items()
    }, "an unreadable index is ignored"


def test_maintenance_does_nothing_after_the_lease_is_lost(life: LongLife) -> None:
    life.accept(3)
    life.match(3)
    life.advance(days=2)
    with pytest.raises(FencedError):
        run_maintenance(life.workspace, life.epoch + 1)
    assert (_live(life, "items"), _live(life, "matches")) == (1, 1)


# --- retention -----------------------------------------------------------------------------------------------------


def _keeping(life: LongLife, **settings_: Any) -> Workspace:
    return replace(life.workspace, settings=life.workspace.settings.model_copy(update=settings_))


def test_old_items_are_deleted_unless_they_are_still_needed(life: LongLife) -> None:
    for _ in range(5):
        _day_of_work(life, every=240)
    workspace = _keeping(life, keep_items_days=2, orphan_seconds=0.0)
    assert run_maintenance(workspace, life.epoch, chores=True).retained == 0, "nothing was delivered yet"
    with workspace.catalog.write() as connection:
        ledger.set_cursor(connection, ledger.SHARED, life.matched)
        ledger.set_cursor(connection, 1, 20)
    run_maintenance(workspace, life.epoch, chores=True)
    assert life.retained == 12, "the cursor of a digest at 20 holds the file that it is in"
    life.check(workspace)
    life.deliver()
    with workspace.catalog.write() as connection:
        ledger.record_messages(connection, [Message(1, 1, 26, 30, 1, "k", "d")])
    run_maintenance(workspace, life.epoch, chores=True)
    assert life.retained == 24, "so does an open message"
    with workspace.catalog.write() as connection:
        catalog_rows.settle(connection, Message(1, 1, 26, 30, 1, "k", "d"), MessageState.DONE, "sent")
    run_maintenance(workspace, life.epoch, chores=True)
    assert life.retained == 36
    life.check(workspace)
    with pytest.raises(NotFoundError, match="up to sequence 36 were deleted"):
        list(workspace.items.get([36]))
    assert workspace.items.sequence_before(0) == 36, "the past begins at the first retained item"
    assert [path.name for path in workspace.storage.local("items").rglob("*.parquet")].__len__() == _live(
        life, "items"
    )
    life.accept(1)
    assert life.workspace.items.last_sequence() == 61, "sequences continue"


def test_seen_id_is_kept_while_its_source_still_shows_it(life: LongLife) -> None:
    workspace = _keeping(life, keep_items_days=30)

    def offer(feed: int, *ids: str) -> int:
        return workspace.items.accept(
            feed, [Item("A", value, attributes_of({"title": value})) for value in ids]
        ).accepted

    def forget(days: int) -> int:
        life.advance(days=days)
        return run_maintenance(workspace, life.epoch, chores=True).forgotten

    assert offer(FEED, "old", "steady") == 2
    assert forget(20) == 0
    assert offer(FEED, "steady", "new") == 1, "the source still shows it"
    assert forget(20) == 1, "`old` was not shown for 40 days"
    assert offer(FEED, "steady", "new") == 0
    assert offer(FEED, "old") == 1, "it is new when it appears again"
    # A page that does not change is not offered again, for years; what is on it is not forgotten.
    assert forget(1000) == 0
    assert offer(FEED, "steady", "new", "newest") == 1
    assert forget(1) == 1, "`old` was not on it any more"
    # Nor is what is in a file that does not change, whatever else the feed gets.
    assert offer(7, "in file") == 1
    with workspace.catalog.write() as connection:
        source_files.record_file(connection, SourceFile(7, DocumentState("/nowhere/a.jsonl", 1, 1, "digest")))
    life.advance(days=100)
    assert offer(7, "elsewhere") == 1
    assert forget(1) == 0
    with workspace.catalog.write() as connection:
        source_files.forget_files(connection, 7, ["/nowhere/a.jsonl"])
    assert forget(1) == 1


def test_old_ids_are_found_without_blocking_writers_and_deleted_in_batches(
    life: LongLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = _keeping(life, keep_items_days=30)
    for name, value in (("_FOUND_IDS", 7), ("_ROWS", 3)):
        monkeypatch.setattr(f"runnel.engine.upkeep.maintenance.{name}", value)

    def offer(*ids: str) -> int:
        return workspace.items.accept(
            FEED, [Item("A", element, attributes_of({"title": element})) for element in ids]
        ).accepted

    offer(*(f"old {number}" for number in range(20)))
    life.advance(days=40)
    offer("new")
    find, forget, sizes = manifest.expired_seen, manifest.forget_seen, list[int]()

    def found(connection: Connection, day: int, limit: int) -> Any:
        expired = find(connection, day, limit)
        # Another process writes between finding and forgetting: the catalog is not held, and what it shows stays.
        with workspace.catalog.write() as other:
            manifest.touch_seen(other, FEED, [key for _, key in expired][:1])
        return expired

    def forgotten(connection: Connection, keys: Any, day: int) -> int:
        sizes.append(len(keys))
        return forget(connection, keys, day)

    monkeypatch.setattr(manifest, "expired_seen", found)
    monkeypatch.setattr(manifest, "forget_seen", forgotten)
    done = run_maintenance(workspace, life.epoch, chores=True).forgotten
    # Each look finds seven at most, of which one is shown again meanwhile: 20 = 6 + 6 + 5 forgotten and 3 kept.
    assert (done, max(sizes)) == (17, 3)
    with workspace.catalog.read() as connection:
        assert connection.execute(text("select count(*) from seen")).scalar_one() == 4


def test_records_of_missing_source_files_are_deleted_unless_all_are_missing(life: LongLife, tmp_path: Path) -> None:
    here, gone = tmp_path / "a.jsonl", tmp_path / "gone.jsonl"
    here.touch()
    with life.workspace.catalog.write() as connection:
        for feed, path in ((7, str(here)), (7, str(gone)), (7, ""), (8, str(gone))):
            source_files.record_file(connection, SourceFile(feed, DocumentState(path, 1, 1, "d" if path else "")))
    run_maintenance(life.workspace, life.epoch, chores=True)
    with life.workspace.catalog.read() as connection:
        kept = [(file.feed, file.state.path) for file in source_files.known_files(connection)]
    assert kept == [(7, ""), (7, str(here)), (8, str(gone))]


def test_oldest_quarantined_bytes_are_deleted_first_and_their_rows_stay(life: LongLife) -> None:
    workspace = _keeping(life, keep_quarantine_bytes=250)
    for number in range(4):
        workspace.storage.write(f"quarantine/{number}", b"x" * 100)
        with workspace.catalog.write() as connection:
            for place in ("a", "b"):
                quarantine.add_quarantined(
                    connection, Quarantined("item", place, "broken", path=f"quarantine/{number}")
                )
    assert run_maintenance(workspace, life.epoch, chores=True).asides == 2
    assert sorted(file.path for file in workspace.storage.files("quarantine")) == ["quarantine/2", "quarantine/3"]
    with workspace.catalog.read() as connection:
        things = quarantine.quarantined_rows(connection)
        assert quarantine.quarantined_count(connection) == 8
        assert quarantine.quarantined_bytes(connection) == 200
    assert [value.path for value in things] == ["quarantine/3"] * 2 + ["quarantine/2"] * 2 + [None] * 4
    assert things[-1].reason == "broken; its content was deleted"
    life.advance(days=40)
    run_maintenance(_keeping(life, keep_items_days=30), life.epoch, chores=True)
    with workspace.catalog.read() as connection:
        assert (quarantine.quarantined_count(connection), quarantine.quarantined_bytes(connection)) == (0, 0)
    assert list(workspace.storage.files("quarantine")) == []


def test_statistics_of_dropped_feeds_are_deleted(life: LongLife) -> None:
    with life.workspace.catalog.write() as connection:
        kept, dropped = (
            catalog_rows.add_feed(connection, name, FeedKind.SOURCE, "…") for name in ("Kept", "Dropped")
        )
        stream_statistics.note(connection, {feed: StreamSample(1, {"rock": 1}) for feed in (kept, dropped)})
        stream_statistics.learn(connection)
        feeds.drop_feed(connection, dropped)
    run_maintenance(life.workspace, life.epoch, chores=True)
    with life.workspace.catalog.read() as connection:
        assert set(stream_statistics.learned(connection)) == {stream_statistics.WHOLE_STREAM, kept}


def test_plans_that_no_batch_needs_are_deleted_with_their_files(life: LongLife) -> None:
    workspace = _keeping(life, orphan_seconds=0.0)
    with workspace.catalog.write() as connection:
        for name in ("base", "delta", "next"):
            workspace.storage.write(f"plans/{name}/manifest.json", b"{}")
        versions = [
            plan_versions.publish_plan(connection, base, delta, 1)
            for base, delta in (("plans/base", None), ("plans/base", "plans/delta"), ("plans/next", None))
        ]
    life.plan = versions[1]
    life.accept(1)
    life.match(1)
    life.advance(hours=1)
    run_maintenance(workspace, life.epoch, chores=True)
    with workspace.catalog.read() as connection:
        assert [plan_versions.plan_by_version(connection, version) is None for version in versions] == [
            True,
            False,
            False,
        ]
    assert len(list(workspace.storage.files("plans"))) == 3, "the base is shared"
    life.plan = versions[2]
    life.accept(1)
    life.match(1)
    life.advance(hours=1)
    run_maintenance(workspace, life.epoch, chores=True)
    assert [file.path for file in workspace.storage.files("plans")] == ["plans/next/manifest.json"]


def test_delivered_messages_are_folded_into_receipts(life: LongLife) -> None:
    workspace = _keeping(life, keep_receipts_days=10)
    with workspace.catalog.write() as connection:
        sent = [Message(1, number, number, number, 2, f"k{number}", "d") for number in range(1, 5)]
        ledger.record_messages(connection, sent)
        for message in sent[:3]:
            state = MessageState.DEAD if message.number == 2 else MessageState.DONE
            catalog_rows.settle(connection, message, state, "outcome")
        before = receipts.message_counts(connection)
    assert before == {"open": 1, "done": 2, "dead": 1}
    life.advance(days=11)
    assert run_maintenance(workspace, life.epoch, chores=True).folded == 3
    with workspace.catalog.write() as connection:
        assert receipts.message_counts(connection) == before
        assert ledger.next_number(connection, 1) == 5
        receipt = receipts.receipt_of(connection, 1)
        assert receipt is not None
        assert (receipt.number, receipt.done, receipt.dead, receipt.items) == (3, 2, 1, 6)
        catalog_rows.settle(connection, sent[3], MessageState.DONE, "late")
    life.advance(days=11)
    assert run_maintenance(workspace, life.epoch, chores=True).folded == 0, "the newest stays, for its number"
    with workspace.catalog.read() as connection:
        assert ledger.next_number(connection, 1) == 5


def test_chores_run_once_per_hour(life: LongLife, monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[str] = []

    def files(storage: FileStorage, prefix: str) -> Iterator[Any]:
        walks.append(prefix)
        return iter(())

    monkeypatch.setattr(FileStorage, "files", files)
    for _ in range(120):
        life.advance(minutes=1)
        run_maintenance(life.workspace, life.epoch)
    assert 0 < len(walks) <= 3 * 7


# --- death at every boundary ---------------------------------------------------------------------------------------


class _CrashError(BaseException):
    """Simulates the end of the process."""


class _CrashPoint:
    """Counts write operations, and simulates a crash at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.passed = at, 0

    def step(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            raise _CrashError


class _CrashingStorage(FileStorage):
    """A storage that simulates a crash after an operation."""

    def __init__(self, url: str, fate: _CrashPoint) -> None:
        super().__init__(url)
        self._fate = fate

    def write(self, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        super().write(path, data, last=last)
        self._fate.step()

    def delete(self, path: str) -> None:
        super().delete(path)
        self._fate.step()


class _CrashingCatalog(Catalog):
    def __init__(self, url: str, clock: Any, fate: _CrashPoint) -> None:
        super().__init__(url, clock=clock)
        self._fate = fate

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with super().write() as connection:
            yield connection
        self._fate.step()


def _make_eventful_workspace(folder: Path, **more: Any) -> LongLife:
    """Create a workspace with work for every kind of maintenance."""
    life = LongLife.make(
        folder, keep_items_days=2, archive_segments=2, orphan_seconds=0.0, keep_receipts_days=1, **more
    )
    workspace = life.workspace
    workspace.storage.write("quarantine/1", b"x" * 100)
    workspace.storage.write("items/orphan", b"x")
    with workspace.catalog.write() as connection:
        quarantine.add_quarantined(connection, Quarantined("item", "a", "broken", path="quarantine/1"))
        ledger.record_messages(connection, [Message(1, n, 1, 1, 1, f"k{n}", "d") for n in (1, 2)])
        for number in (1, 2):
            catalog_rows.settle(connection, Message(1, number, 1, 1, 1, f"k{number}", "d"), MessageState.DONE, "sent")
    for _ in range(6):
        life.accept(2)
        life.match(2)
        life.advance(hours=14)
    life.deliver()
    for _ in range(2):
        life.accept(1)
        life.match(1)
    life.accept(2)
    return life


def _run_all_maintenance(workspace: Workspace, epoch: int) -> MaintenanceReport:
    return run_maintenance(workspace, epoch, at_least=1, chores=True)


def test_crash_at_any_write_of_maintenance_loses_nothing(tmp_path: Path) -> None:
    life = _make_eventful_workspace(tmp_path / "workspace")
    life.workspace.close()
    at = 0
    while True:
        at += 1
        fate = _CrashPoint(at)
        copy = tmp_path / f"at-{at}"
        shutil.copytree(life.workspace.folder, copy)
        healthy = open_workspace(copy, clock=life.clock, **_settings(life))
        mortal = replace(
            healthy,
            catalog=_CrashingCatalog(healthy.catalog.url, life.clock, fate),
            storage=_CrashingStorage(healthy.storage.url, fate),
        )
        with suppress(_CrashError):
            _run_all_maintenance(mortal, life.epoch)
        mortal.catalog.close()
        life.check(healthy)
        if at % 3 == 0 or fate.passed < at:
            _run_all_maintenance(healthy, life.epoch)
            collect_garbage(healthy.catalog, healthy.storage, older_than=0)
            _verify_nothing_is_left_over(healthy)
        if fate.passed < at:
            break
        healthy.close()
        shutil.rmtree(copy)
    life.check(healthy)
    healthy.close()
    assert at > 30, "the test must have reached many operations"


def test_maintenance_works_on_postgresql(tmp_path: Path, postgresql: PostgreSQL) -> None:
    life = _make_eventful_workspace(tmp_path / "workspace", catalog=postgresql.database())
    done = _run_all_maintenance(life.workspace, life.epoch)
    assert min(done.archived, done.compacted, done.merged, done.retained, done.folded, done.removed) > 0
    life.check()
    life.advance(days=3)
    life.deliver()
    life.workspace.storage.write("quarantine/2", b"x")
    with life.workspace.catalog.write() as connection:
        quarantine.add_quarantined(connection, Quarantined("item", "b", "broken", path="quarantine/2"))
    done = _run_all_maintenance(_keeping(life, keep_quarantine_bytes=0), life.epoch)
    assert min(done.asides, done.forgotten) > 0
    life.check()
    life.workspace.close()


def _settings(life: LongLife) -> dict[str, Any]:
    names = ("keep_items_days", "archive_segments", "orphan_seconds", "keep_receipts_days")
    return {name: getattr(life.workspace.settings, name) for name in names}


def _verify_nothing_is_left_over(workspace: Workspace) -> None:
    with workspace.catalog.read() as connection:
        named = {
            str(row.path)
            for row in connection.execute(
                text(
                    "select path from item_segments union select path from match_parts "
                    "union select by_query from match_parts where by_query is not null"
                )
            )
        }
    paths = {file.path for folder in ("items", "matches", "quarantine") for file in workspace.storage.files(folder)}
    assert paths == named


@pytest.mark.parametrize("at", [1, 3, 6])
def test_killed_maintenance_process_leaves_a_consistent_workspace(tmp_path: Path, at: int) -> None:
    life = _make_eventful_workspace(tmp_path / "workspace")
    life.workspace.close()
    program = (
        "import os, sys\nfrom datetime import datetime, UTC\nfrom pathlib import Path\n"
        "from runnel.engine.workspace import open_workspace\n"
        "from runnel.engine.upkeep.maintenance import run_maintenance\n"
        "from runnel.testing import FakeClock\n"
        "folder, at, counter, moment, epoch = sys.argv[1:]\n"
        "storage = f'crash+{Path(folder).as_uri()}?at={at}&counter={counter}&group={os.getpgrp()}'\n"
        "clock = FakeClock(datetime.fromtimestamp(float(moment), UTC))\n"
        "settings = {'storage': storage, 'keep_items_days': 2, 'orphan_seconds': 0.0}\n"
        "workspace = open_workspace(Path(folder), clock=clock, **settings)\n"
        "run_maintenance(workspace, int(epoch), at_least=1, chores=True)\n"
    )
    arguments = [str(life.workspace.folder), str(at), str(tmp_path / "counter"), str(life.clock()), str(life.epoch)]
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], start_new_session=True, capture_output=True, check=False
    )
    assert ended.returncode == -9, ended.stderr.decode()
    healthy = open_workspace(life.workspace.folder, clock=life.clock, **_settings(life))
    life.check(healthy)
    _run_all_maintenance(healthy, life.epoch)
    life.check(healthy)
    healthy.close()
