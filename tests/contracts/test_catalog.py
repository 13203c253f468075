"""The contract of the catalog, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from tests import catalog_rows

from runnel.algebra.nodes.query import Read, Union
from runnel.catalog.declared import feeds
from runnel.catalog.delivery import ledger, outbox
from runnel.catalog.logs import item_segments, match_segments, plan_versions
from runnel.catalog.logs.item_segments import SeenItem
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases, sequencer
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.migrations import HISTORY
from runnel.errors import FencedError, LineageConflictError, RunnerActiveError, StorageFullError
from runnel.model.feed import FeedKind
from runnel.model.message import Message, MessageState
from runnel.model.segment import MatchPart, Tier


def _source(catalog: Catalog, name: str) -> int:
    with catalog.write() as connection:
        return catalog_rows.add_feed(connection, name, FeedKind.SOURCE, f"register feed {name};")


def test_migrating_again_changes_nothing(catalog: Catalog) -> None:
    _source(catalog, "A")
    assert catalog.migrate() == HISTORY.version
    with catalog.read() as connection:
        assert feeds.live_names(connection) == ["A"]


def test_failed_transaction_is_rolled_back(catalog: Catalog) -> None:
    def declare_and_fail() -> None:
        with catalog.write() as connection:
            catalog_rows.add_feed(connection, "A", FeedKind.SOURCE, "register feed A;")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        declare_and_fail()
    with catalog.read() as connection:
        assert feeds.live_names(connection) == []


def test_ids_are_never_reused(catalog: Catalog) -> None:
    first = _source(catalog, "A")
    with catalog.write() as connection:
        feeds.drop_feed(connection, first)
        assert feeds.feed_by_name(connection, "A") is None
    second = _source(catalog, "A")
    assert second > first
    with catalog.read() as connection:
        assert feeds.feed_names(connection) == {first: "A", second: "A"}


def test_definitions_follow_views_and_keep_history(catalog: Catalog) -> None:
    a, b = _source(catalog, "A"), _source(catalog, "B")
    with catalog.write() as connection:
        view = catalog_rows.add_feed(connection, "V", FeedKind.VIRTUAL, "v1", node=Read(a))
        top = catalog_rows.add_feed(connection, "T", FeedKind.VIRTUAL, "t1", node=Union((Read(view), Read(b))))
        before = plan_versions.publish_plan(connection, "base", None, 0)
        feed = feeds.feed_by_name(connection, "V")
        assert feed is not None
        feeds.replace_feed(connection, feed, "v2", Read(b))
        assert feeds.definitions(connection, [top]) == {view: Read(b), top: Union((Read(view), Read(b)))}
        assert feeds.definitions_at(connection, top, before)[view] == Read(a)
        assert feeds.all_readers(connection, [b]) == {b, view, top}
        assert feeds.all_sources(connection, [top]) == {top, view, b}


def test_sequences_are_consecutive(catalog: Catalog) -> None:
    with catalog.write() as connection:
        assert sequencer.take_sequences(connection, 3)[0] == 1
        assert sequencer.take_sequences(connection, 2)[0] == 4
        assert sequencer.last_sequence(connection) == 5


def _count(url: str, turns: int) -> None:
    catalog = Catalog(url)
    for _ in range(turns):
        with catalog.write() as connection:
            sequencer.take_sequences(connection, 1)


def test_writers_in_other_processes_are_serialized(catalog: Catalog) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_count, args=(catalog.url, 20)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with catalog.read() as connection:
        assert sequencer.last_sequence(connection) == 60


def test_seen_set_keeps_the_newest_version(catalog: Catalog) -> None:
    keys = [bytes([number]) * 16 for number in range(3)]
    with catalog.write() as connection:
        item_segments.record_seen(connection, 1, {keys[0]: SeenItem(1, b"a", 1), keys[1]: SeenItem(1, b"b", None)})
        item_segments.record_seen(connection, 1, {keys[0]: SeenItem(2, b"c", 7)})
        assert item_segments.seen_of(connection, 1, keys) == {
            keys[0]: SeenItem(2, b"c", 7),
            keys[1]: SeenItem(1, b"b", None),
        }
        assert item_segments.newest_sequences(connection, keys[0]) == [(1, 7)]
        assert item_segments.newest_sequences(connection, keys[1]) == []


def test_segments_are_found_by_sequence(catalog: Catalog) -> None:
    with catalog.write() as connection:
        for first in (1, 11, 21):
            item_segments.add_segment(
                connection, Tier.LOG, f"s{first}", sequences=(first, first + 9), times=(first, first), size=1
            )
        assert [segment.path for segment in item_segments.segments_between(connection, 10, 20)] == ["s11"]
        assert [segment.path for segment in item_segments.segments_between(connection, 9, 21)] == ["s1", "s11", "s21"]
        item_segments.retire_segments(connection, item_segments.segments_between(connection, 0, 10))
        assert [segment.path for segment in item_segments.segments_between(connection, 0, 30)] == ["s11", "s21"]


def _segment(batch: int, first: int, last: int, lineage: int = 1) -> tuple[MatchSegment, list[MatchPart]]:
    segment = MatchSegment(lineage, batch, first, last, 1, last - first + 1, 0)
    return segment, [MatchPart(f"p{lineage}-{batch}-{first}", first, last, 1)]


def test_match_segments_never_overlap_and_commit_once(catalog: Catalog) -> None:
    with catalog.write() as connection:
        lease = leases.acquire(connection, 10)
        assert match_segments.commit_segment(connection, *_segment(0, 1, 5), epoch=lease.epoch)
        assert not match_segments.commit_segment(connection, *_segment(0, 1, 5), epoch=lease.epoch)
        with pytest.raises(LineageConflictError):
            match_segments.commit_segment(connection, *_segment(0, 1, 6), epoch=lease.epoch)
        with pytest.raises(LineageConflictError):
            match_segments.commit_segment(connection, *_segment(1, 5, 9), epoch=lease.epoch)
        with pytest.raises(LineageConflictError):
            match_segments.commit_segment(connection, *_segment(1, 7, 9), epoch=lease.epoch)
        assert match_segments.matched_upto(connection) == 5
        assert len(match_segments.match_parts(connection, 0, 5)) == 1


def test_new_lineage_starts_after_the_last_committed_sequence(catalog: Catalog) -> None:
    with catalog.write() as connection:
        lease = leases.acquire(connection, 10)
        first = match_segments.start_lineage(connection, "form", reason="first run")
        match_segments.commit_segment(connection, *_segment(0, 1, 5, first.id), epoch=lease.epoch)
        second = match_segments.start_lineage(connection, "form", reason="lost")
        assert second.after_sequence == 5
        assert match_segments.current_lineage(connection) == second
        assert match_segments.commit_segment(connection, *_segment(0, 6, 6, second.id), epoch=lease.epoch)


def test_live_lease_cannot_be_acquired_again(catalog: Catalog) -> None:
    with catalog.write() as connection:
        lease = leases.acquire(connection, 10)
        with pytest.raises(RunnerActiveError):
            leases.acquire(connection, 10)
        leases.release(connection, lease)
        assert leases.acquire(connection, 10).epoch == lease.epoch + 1


def test_dead_holder_on_this_host_is_replaced_immediately_and_fenced(catalog: Catalog) -> None:
    code = (
        "import sys; from runnel.catalog.store.connection import Catalog; from runnel.catalog.store import leases\n"
        "c = Catalog(sys.argv[1])\n"
        "with c.write() as k: print(leases.acquire(k, 3600).epoch)\n"
    )
    process = subprocess.run([sys.executable, "-c", code, catalog.url], capture_output=True, text=True, check=True)
    old = int(process.stdout)
    with catalog.write() as connection:
        fresh = leases.acquire(connection, 10)
        assert fresh.epoch == old + 1
        with pytest.raises(FencedError):
            match_segments.commit_segment(connection, *_segment(0, 1, 1), epoch=old)


def test_holder_on_another_host_is_replaced_when_its_lease_expires(catalog: Catalog) -> None:
    elsewhere = json.dumps({"host": "elsewhere", "process": os.getpid(), "started": 1, "seconds": 3600})
    with catalog.write() as connection:
        lease = leases.acquire(connection, 3600)
        connection.execute(text("update leases set holder = :h"), {"h": elsewhere})
        with pytest.raises(RunnerActiveError, match="elsewhere"):
            leases.acquire(connection, 10)
        connection.execute(text("update leases set expires = 1"))
        assert leases.acquire(connection, 10).epoch == lease.epoch + 1


def test_ledger_lists_each_message_once(catalog: Catalog) -> None:
    message = Message(1, 1, 1, 5, 2, "key-1", "digest")
    with catalog.write() as connection:
        ledger.record_messages(connection, [message])
        assert catalog_rows.open_messages(connection) == [message]
        catalog_rows.settle(connection, message, MessageState.OPEN, "busy")
        catalog_rows.settle(connection, message, MessageState.DONE, "written")
        assert catalog_rows.open_messages(connection) == []
        [done] = ledger.messages_of(connection, 1)
        assert (done.state, done.attempts, done.outcome) == (MessageState.DONE, 2, "written")
        assert ledger.next_number(connection, 1) == 2
    with pytest.raises(Exception, match=r"(?i)unique"), catalog.write() as connection:
        ledger.record_messages(connection, [Message(1, 2, 1, 5, 2, "key-1", "digest")])


def test_periods_that_were_missed_are_skipped(catalog: Catalog) -> None:
    feed = _source(catalog, "A")
    with catalog.write() as connection:
        number = catalog_rows.add_subscription(
            connection, feed, "log", None, since=0, every=timedelta(hours=1), lifetime=timedelta(days=1)
        )
        assert outbox.due(connection, after=0, limit=10) == []
        connection.execute(text("update subscriptions set created = created - 9000000000, due = due - 9000000000"))
        [due] = outbox.due(connection, after=0, limit=10)
        assert due.subscription.id == number
        outbox.begin_next_periods(connection, [due.subscription])
        assert outbox.due(connection, after=0, limit=10) == []


def test_full_catalog_is_reported_and_works_again_with_space(tmp_path: Path) -> None:
    small = Catalog(f"sqlite:///{tmp_path / 'small.sqlite'}", max_bytes=800_000)
    small.migrate()

    def declare_too_much() -> None:
        with small.write() as connection:
            for number in range(2000):
                catalog_rows.add_feed(connection, f"F{number}" + "x" * 500, FeedKind.SOURCE, "s")

    with pytest.raises(StorageFullError, match="no disk space"):
        declare_too_much()
    roomy = Catalog(small.url)
    assert _source(roomy, "A") > 0
    with roomy.read() as connection:
        assert feeds.live_names(connection) == ["A"]
