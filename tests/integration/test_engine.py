"""The engine end to end: generated news on Spark, compared with the reference, and the reader of the stream alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import feedparser
import pytest
from tests.crash.harness import _verify_matches, _verify_segments
from tests.integration.in_process import InProcess, matched_ids, read_files

import runnel
from runnel.algebra.nodes.query import Read
from runnel.algebra.semantics.evaluate import accepts
from runnel.catalog.declared import feeds
from runnel.catalog.logs import item_segments, match_segments, plan_versions
from runnel.engine import Engine
from runnel.engine.run.runner import Progress
from runnel.errors import RunnerActiveError
from runnel.model.message import MessageState
from runnel.sources.documents.adapt import adapt
from runnel.sources.documents.decode import decode
from runnel.testing import FakeClock, MemorySink, ScriptedSource, World


def _numbered(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": str(number), "n": number} for number in range(first, last + 1)]


# --- the world, on Spark -------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_generated_news_is_matched_and_delivered_like_the_reference(tmp_path: Path) -> None:
    world = World.generate(seed=11, feeds=8, items=300, queries=120, editions=6)
    states: list[str] = []

    def report(progress: Progress) -> None:
        states.append(progress.state)

    with runnel.connect(tmp_path / "root", first_fetch_items=1_000_000, max_batch_items=80) as engine:
        engine.execute(world.script())
        for editions in ((1, 2, 3), (4, 5, 6)):
            for number in editions:
                world.write_edition(number, engine.workspace.folder)
            final = engine.run(once=True, report=report)
            assert (final.lag, final.state) == (0, "stopped")
            assert final.accepted == final.matched == sum(item.edition in editions for item in world.items)
        assert list(dict.fromkeys(states)) == ["starting Spark", "matching", "delivering", "stopped"]
        _verify_segments(engine)
        results = _verify_matches(engine)
        assert sum(map(len, results.values())) == engine.status().matches > 100
        _verify_versions(engine, world)
        _verify_outputs(engine, world, results)
        _verify_tidiness(engine)
        idle = engine.run(once=True)
        assert (idle.accepted, idle.matched, idle.delivered) == (0, 0, 0)
        assert engine.status().runner == "none"


def _verify_versions(engine: Engine, world: World) -> None:
    """Assert that only edited items are accepted again, each as the next version."""
    expected = Counter((item.feed, item.version) for item in world.items)
    with engine.workspace.catalog.read() as connection:
        names = feeds.feed_names(connection)
    accepted = [value for batch in engine.workspace.items.read(0, 1 << 60) for value in batch.items(names)]
    assert Counter((value.feed, value.version) for value in accepted) == expected
    assert max(value.version for value in accepted) == 2
    edited = next(value for value in accepted if value.version == 2)
    assert edited.first("updated") is not None


def _verify_outputs(engine: Engine, world: World, results: dict[str, list[str]]) -> None:
    """Assert that Runnel and feedparser can read every file, and that it contains the matches of its query."""
    kinds = set()
    for subscription in world.subscriptions:
        if subscription.target is None or not results[subscription.feed]:
            continue
        path = engine.workspace.out / subscription.target
        ids = results[subscription.feed]
        kinds.add(subscription.kind)
        decoded = adapt(decode(path.read_bytes(), path.name), "Output")
        if subscription.kind == "jsonl":  # every version is a line
            assert [json.loads(line)["id"] for line in path.read_text("utf-8").splitlines()] == ids
            assert {item.id for item in decoded.items} == set(ids)
            continue
        assert list(decoded.problems) == []
        expected = len(set(ids[-200:]))
        assert len(decoded.items) == expected
        if subscription.kind == "json":
            assert len(json.loads(path.read_text("utf-8"))["items"]) == expected
        else:
            parsed = feedparser.parse(path.read_bytes())
            assert not parsed.bozo
            assert len(parsed.entries) == expected
            assert all(entry.title and entry.link for entry in parsed.entries)
    assert kinds == {"rss", "atom", "json", "jsonl"}


def _verify_tidiness(engine: Engine) -> None:
    status = engine.status()
    assert set(status.messages) == {MessageState.DONE.value}
    assert (status.put_aside, status.failing_sources, status.lag) == (0, [], 0)
    with engine.workspace.catalog.read() as connection:
        segments = item_segments.segments_between(connection, 0, 1 << 60)
        plan = plan_versions.current_plan(connection)
        batches = match_segments.match_segments(connection)
    assert {segment.tier for segment in segments} == {"day"}, "what is matched is archived"
    assert max(batch.items for batch in batches) <= 80, "batches are bounded"
    assert plan is not None
    assert {batch.plan for batch in batches} == {plan.version}


# --- since, replace, why, delivery and preview, on Spark -----------------------------------------------------------


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_declarations_between_runs_take_effect_on_spark(engine: Engine, clock: FakeClock) -> None:
    engine.execute(
        "register feed Wire; create feed Hot from Wire where n > 5; subscribe to Hot output memory 'hot';"
        "subscribe to Wire output memory 'digest' every 1 hour;"
    )
    source = ScriptedSource("Wire", [_numbered(1, 8), _numbered(9, 12)])
    source.step(engine)
    first = engine.run(once=True)
    assert (first.matched, first.delivered) == (8, 1)
    assert matched_ids(engine, "Hot") == ["6", "7", "8"]

    # Items wait; one query is replaced and one becomes live. The runner has not seen these items yet.
    source.step(engine)
    clock.advance(timedelta(hours=1))
    engine.execute(
        "create or replace feed Hot from Wire where n > 10; create feed Late from Wire where n > 0;"
        "subscribe to Late output memory 'late'; subscribe to Late output memory 'past' from last 7 days;"
    )
    engine.publish("Wire", _numbered(13, 14))
    engine.run(once=True)
    assert matched_ids(engine, "Hot") == ["6", "7", "8", "11", "12", "13", "14"]
    assert matched_ids(engine, "Late") == ["13", "14"]
    assert MemorySink.item_ids("hot") == matched_ids(engine, "Hot")
    assert MemorySink.item_ids("late") == ["13", "14"]
    assert MemorySink.item_ids("past") == [str(number) for number in range(1, 15)]
    assert [len(delivery.items) for delivery in MemorySink.delivered("digest")] == [14]

    # `why` speaks of the query as it was when the item was matched.
    before, after = engine.why("7", "Hot"), engine.why("9", "Hot")
    assert (before.to_json()["holds"], before.to_json()["recorded"]) == (True, True)
    assert any("n > 5" in line for line in before.lines)
    assert (after.to_json()["holds"], after.to_json()["recorded"]) == (False, False)
    assert any("n > 10" in line for line in after.lines)
    engine.publish("Wire", _numbered(15, 15))
    waiting = engine.why("15", "Hot")
    assert (waiting.to_json()["recorded"], waiting.lines[-1]) == (None, "not matched yet")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_previews_on_spark_and_in_process_equal_the_reference(tmp_path: Path) -> None:
    world = World.generate(seed=3, feeds=6, items=200, queries=30, editions=2)
    root = tmp_path / "root"
    query = "create feed Tried from {} where title contains 'the' or n > 3 or not description contains 'a';".format(
        " | ".join([*(feed.name for feed in world.feeds[:3]), *(value.name for value in world.queries[:2])])
    )
    with runnel.connect(root, first_fetch_items=1_000_000) as client:
        client.execute(world.script())
        for number in (1, 2):
            world.write_edition(number, root)
        read_files(client)
        before = _everything(client)
        here = client.preview(query)
        declared = client.preview(world.queries[0].name)
        with runnel.connect(root, preview_items=1, slice_items=17) as other:
            there = other.preview(query)
            assert other.preview(world.queries[0].name).matched == declared.matched
        assert (here.used_spark, there.used_spark) == (False, True)
        assert (here.looked_at, here.matched) == (there.looked_at, there.matched)
        assert [entry.id for entry in here.newest] == [entry.id for entry in there.newest]
        assert _everything(client) == before, "a preview writes nothing"
        client.execute(query)
        ids = _accepted_ids(client, "Tried")
        assert here.matched == len(ids) > 20
        assert [entry.id for entry in here.newest] == ids[::-1][:20]
        row = client.execute(f"preview feed {world.queries[0].name} over last 1 day;")[0]
        assert row.to_json()["matched"] == declared.matched


def _everything(engine: Engine) -> tuple[object, ...]:
    """Return all files of the workspace, and the rows of the manifests."""
    files = sorted(
        (str(path.relative_to(engine.workspace.folder)), path.stat().st_size)
        for path in engine.workspace.folder.rglob("*")
        if path.is_file() and "catalog.sqlite" not in path.name and "logs" not in path.parts
    )
    with engine.workspace.catalog.read() as connection:
        segments = len(item_segments.segments_between(connection, 0, 1 << 60))
        return files, segments, len(match_segments.match_segments(connection)), plan_versions.current_plan(connection)


def _accepted_ids(engine: Engine, name: str) -> list[str]:
    """Return the ids of the accepted items that match a feed according to the reference evaluator."""
    with engine.workspace.catalog.read() as connection:
        names = feeds.feed_names(connection)
        nodes = feeds.definitions(connection)
        feed = feeds.feed_by_name(connection, name)
    assert feed is not None
    return [
        item.id
        for batch in engine.workspace.items.read(0, 1 << 60)
        for source, item in zip(batch.feeds.tolist(), batch.items(names), strict=True)
        if accepts(Read(feed.id), source, item.attributes, nodes)
    ]


def test_preview_by_name_accepts_names_that_begin_with_create(engine: Engine) -> None:
    engine.execute("register feed Wire; create feed CreatedItems from Wire where n > 1;")
    engine.publish("Wire", _numbered(1, 3))
    assert engine.preview("CreatedItems").matched == 2


def test_second_runner_of_a_workspace_is_refused(engine: Engine) -> None:
    runner = InProcess(engine)
    with pytest.raises(RunnerActiveError, match="a runner is active"):
        engine.run(once=True)
    assert runner.match() == 0


def test_clients_declare_and_publish_concurrently(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with runnel.connect(root) as engine:
        engine.execute("register feed Wire; create feed All from Wire; subscribe to All output log;")

    def client(number: int) -> int:
        accepted = 0
        with runnel.connect(root) as engine:
            for turn in range(5):
                name = f"F{number}x{turn}"
                engine.execute(f"create feed {name} from Wire where n > {turn}; subscribe to {name} output log;")
                # Half of the ids are everybody's: each may be accepted once.
                shared = [{"id": f"shared {turn} {value}", "n": value} for value in range(5)]
                own = [{"id": f"own {number} {turn} {value}", "n": value} for value in range(5)]
                accepted += engine.publish("Wire", shared + own).accepted
        return accepted

    with ThreadPoolExecutor(4) as pool:
        accepted = sum(pool.map(client, range(4)))
    assert accepted == 5 * 5 + 4 * 5 * 5
    with runnel.connect(root) as engine:
        ids = [entry.id for batch in engine.workspace.items.read(0, 1 << 60) for entry in batch.items({})]
        assert len(ids) == len(set(ids)) == accepted == engine.workspace.items.last_sequence()
        status = engine.status()
        assert (status.virtual_feeds, status.matched_feeds, status.plan_queries) == (21, 21, 21)
        InProcess(engine).match()
        _verify_matches(engine)


# --- the reader ----------------------------------------------------------------------------------------------------


@pytest.fixture
def wired(engine: Engine) -> Engine:
    """A workspace with a source feed and a query that matches all its items."""
    engine.execute("register feed Wire; create feed All from Wire; subscribe to All output log;")
    return engine


def _ends(runner: InProcess) -> Iterator[int]:
    while runner.step():
        yield runner.offset["sequence"]


def test_batches_have_a_maximum_number_of_items(wired: Engine) -> None:
    wired.publish("Wire", _numbered(1, 10))
    wired.publish("Wire", _numbered(11, 14))
    assert list(_ends(InProcess(wired, max_batch_items=4))) == [4, 8, 12, 14]
    _verify_segments(wired)
    _verify_matches(wired)


def test_batches_have_a_maximum_number_of_bytes(wired: Engine) -> None:
    for first in range(1, 41, 10):
        wired.publish("Wire", [{"id": str(n), "text": "x" * 10_000} for n in range(first, first + 10)])
    with wired.workspace.catalog.read() as connection:
        segment = item_segments.segments_between(connection, 0, 1)[0]
    per_item = segment.bytes // segment.items
    ends = list(_ends(InProcess(wired, max_batch_bytes=per_item * 15 + 10)))
    assert ends == [15, 30, 40]
    _verify_segments(wired)


def test_item_larger_than_the_limit_is_its_own_batch(wired: Engine) -> None:
    wired.publish("Wire", [{"id": str(n), "text": "x" * 1000} for n in range(1, 4)])
    assert list(_ends(InProcess(wired, max_batch_bytes=1))) == [1, 2, 3]
    assert matched_ids(wired, "All") == ["1", "2", "3"]


def test_offset_does_not_change_without_items(wired: Engine) -> None:
    runner = InProcess(wired)
    start = runner.reader.initialOffset()
    assert start == {"sequence": 0, "plan": 0}
    assert runner.reader.latestOffset(start, None) == start
    wired.publish("Wire", _numbered(1, 2))
    runner.step()
    offset = runner.offset
    assert offset == {"sequence": 2, "plan": 1}
    wired.execute("create feed Other from Wire; subscribe to Other output log;")
    assert runner.reader.latestOffset(offset, None) == offset
    wired.publish("Wire", _numbered(3, 3))
    assert runner.reader.latestOffset(offset, None) == {"sequence": 3, "plan": 2}


def test_bounded_run_matches_items_that_existed_at_its_start(wired: Engine) -> None:
    wired.publish("Wire", _numbered(1, 3))
    runner = InProcess(wired)
    runner.reader.prepareForTriggerAvailableNow()
    wired.publish("Wire", _numbered(4, 9))
    assert list(_ends(runner)) == [3]


@pytest.mark.parametrize(("after", "upto"), [(0, 1000), (0, 1), (999, 1000), (120, 777), (300, 301)])
def test_partitions_cover_a_range_exactly(wired: Engine, after: int, upto: int) -> None:
    for first in range(1, 1001, 250):
        wired.publish("Wire", _numbered(first, first + 249))
    reader = InProcess(wired, slice_items=60, parallelism=3).reader
    parts = reader.partitions({"sequence": after, "plan": 1}, {"sequence": upto, "plan": 1})
    assert 1 <= len(parts) <= 3
    covered = [
        row["first_sequence"] + offset
        for part in parts
        for batch in reader.read(part)
        for row in batch.to_pylist()
        for offset in range(row["rows"])
    ]
    assert covered == list(range(after + 1, upto + 1))


def test_replay_uses_the_plan_of_its_offset(wired: Engine, clock: FakeClock) -> None:
    wired.execute("create feed Hot from Wire where n > 5; subscribe to Hot output log;")
    wired.publish("Wire", _numbered(1, 10))
    runner = InProcess(wired)
    end = runner.reader.latestOffset(runner.offset, None)
    assert end["plan"] == 2
    # Spark has logged the offset; before the batch runs the query changes and another comes.
    wired.execute("create or replace feed Hot from Wire where n > 9; create feed New from Wire;")
    wired.execute("subscribe to New output log;")
    runner.commit(runner.offset, end, 0)
    assert matched_ids(wired, "Hot") == ["6", "7", "8", "9", "10"]
    runner.commit(runner.offset, end, 0)
    with wired.workspace.catalog.read() as connection:
        (segment,) = match_segments.match_segments(connection)
    assert (segment.plan, segment.matches) == (2, 15)
    runner.offset, runner.batches = end, 1
    wired.publish("Wire", [{"id": "11", "n": 7}])
    runner.match()
    assert matched_ids(wired, "Hot") == ["6", "7", "8", "9", "10"]
    assert matched_ids(wired, "New") == ["11"]


def test_items_are_processed_without_a_plan(engine: Engine) -> None:
    engine.execute("register feed Wire;")
    engine.publish("Wire", _numbered(1, 3))
    runner = InProcess(engine)
    assert runner.match() == 1
    status = engine.status()
    assert (status.matched, status.matches, status.plan_version) == (3, 0, None)
