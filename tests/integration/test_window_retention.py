"""Windows over time: joined items outlive `keep_items_days` while they are needed, and all others leave the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess, matched_ids
from tests.integration.test_joins_of_workspaces import files_of_windows, texts

import runnel
from runnel.catalog.logs import item_segments
from runnel.engine import Engine
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.streaming import fill_windows
from runnel.streaming.worker.failures import ReportedError
from runnel.testing import FakeClock

FEEDS = "register feed News; register feed Photos; register feed Tweets;"
SHOWN = (
    "create feed Shown from News as $n join last 30 days on Photos as $photos with $n[title = window.title];"
    "subscribe to Shown output jsonl 'shown.jsonl';"
)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    folder = tmp_path / "workspace"
    with runnel.connect(folder, clock=clock, keep_items_days=10, orphan_seconds=0.0, archive_segments=2) as opened:
        opened.execute(FEEDS)
        yield opened


@pytest.fixture
def run(engine: Engine) -> Iterator[InProcess]:
    opened = InProcess(engine)
    yield opened
    opened.close()


def publish(engine: Engine, run: InProcess, feed: str, *titles: str) -> None:
    engine.publish(feed, texts(*titles))
    run.match()


def maintain(engine: Engine, run: InProcess) -> None:
    run_maintenance(engine.workspace, run.epoch, chores=True)


def deleted_upto(engine: Engine) -> int:
    with engine.workspace.catalog.read() as connection:
        return item_segments.retained_upto(connection)


def delivered(engine: Engine) -> list[tuple[str, list[str], int]]:
    """Return the delivered items, each with the joined photos and their number."""
    lines = map(json.loads, (engine.workspace.out / "shown.jsonl").read_text().splitlines())
    photos = ((line["id"], line["annotations"]["photos"]) for line in lines)
    return [(item, [each["id"] for each in joined["items"]], joined["count"]) for item, joined in photos]


def test_joined_items_are_kept_until_their_matches_are_delivered(
    engine: Engine, run: InProcess, clock: FakeClock
) -> None:
    engine.execute(SHOWN)
    publish(engine, run, "Photos", "photo")
    clock.advance(timedelta(days=8))
    publish(engine, run, "News", "photo")
    for number in range(3):
        clock.advance(timedelta(days=1))
        publish(engine, run, "Tweets", f"tweet {number}")
    maintain(engine, run)
    assert deleted_upto(engine) == 0, "the photo is 11 days old, but the match is not delivered"
    run.deliver()
    assert delivered(engine) == [("photo", ["photo"], 1)]
    maintain(engine, run)
    assert deleted_upto(engine) == 1
    engine.publish("News", [{"id": "late", "title": "photo"}])
    run.match()
    assert matched_ids(engine, "Shown") == ["photo"], "a window has no items that are no longer in the item log"
    maintain(engine, run)
    assert files_of_windows(engine) == []


def test_window_ends_where_the_item_log_begins(engine: Engine, run: InProcess, clock: FakeClock) -> None:
    """A file that also has younger items is read without those that were deleted."""
    engine.execute(SHOWN)
    publish(engine, run, "News", "first")
    publish(engine, run, "Photos", "old")
    clock.advance(timedelta(days=8))
    publish(engine, run, "Photos", "young")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.streaming.window_store._FAN_IN", 2)
        maintain(engine, run)
        assert [each.items for each in files_of_windows(engine)] == [2]
    clock.advance(timedelta(days=3))
    publish(engine, run, "Tweets", "tweet")
    run.deliver()
    with engine.workspace.catalog.write() as connection:
        assert item_segments.retain_items(connection, int(clock() * 1e6) - 10 * 86_400_000_000, 2) > 0
    engine.publish("News", [{"id": f"{title} news", "title": title} for title in ("old", "young")])
    run.match()
    assert matched_ids(engine, "Shown") == ["young news"]
    maintain(engine, run)
    assert [each.first_sequence for each in files_of_windows(engine)] == [3], "the file is cut"
    engine.publish("News", [{"id": f"{title} again", "title": title} for title in ("old", "young")])
    run.match()
    assert matched_ids(engine, "Shown") == ["young news", "young again"]


def test_batch_is_not_committed_if_items_of_its_windows_were_deleted(
    engine: Engine, run: InProcess, clock: FakeClock
) -> None:
    engine.execute(SHOWN)
    publish(engine, run, "Photos", "photo")
    clock.advance(timedelta(days=11))
    engine.publish("News", texts("photo"))
    start, end = run.offset, run.reader.latestOffset(run.offset, None)
    fill = fill_windows._fill

    def fill_and_delete(*arguments: object) -> object:
        filled = fill(*arguments)  # type: ignore[arg-type]
        with engine.workspace.catalog.write() as connection:
            assert item_segments.retain_items(connection, int(clock() * 1e6), 1) == 1
        return filled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fill_windows, "_fill", fill_and_delete)
        with pytest.raises(ReportedError, match="were deleted"):
            run.commit(start, end, run.batches)
    run.match()
    assert matched_ids(engine, "Shown") == []


def test_files_of_a_window_of_three_months_stay_bounded_for_a_year(
    engine: Engine, run: InProcess, clock: FakeClock
) -> None:
    """Expired items leave the disk, even if another window needs a few old items forever."""
    engine.execute(
        "create feed Quarter from News as $n join last 90 days on Photos as $photos with $n[title = window.title];"
        "create feed Latest from News as $n join last 2 items on Tweets as $t with $n[title = window.title];"
        "subscribe to Quarter output log; subscribe to Latest output log;"
    )
    publish(engine, run, "Tweets", "seldom", "rare")
    items, files, stored = [], [], []
    settings = engine.workspace.settings.model_copy(update={"keep_items_days": 365})
    workspace = replace(engine.workspace, settings=settings)
    for day in range(0, 360, 5):
        clock.advance(timedelta(days=5))
        publish(engine, run, "Photos", f"photo {day}", f"second photo {day}")
        publish(engine, run, "News", f"news {day}")
        run_maintenance(workspace, run.epoch, chores=True)
        live = files_of_windows(engine)
        items.append(sum(each.items for each in live))
        files.append(len(live))
        stored.append(len(list(workspace.storage.local("windows").glob("*"))))
    assert max(items) <= 2 * 2 * 90 / 5 + 2, "at most two windows"
    assert max(files) < 30
    assert max(stored) < 40
    engine.publish(
        "News",
        [{"id": title, "title": title} for title in ("seldom", "rare", "photo 355", "photo 275", "photo 260")],
    )
    run.match()
    assert matched_ids(engine, "Quarter") == ["photo 355", "photo 275"]
    assert matched_ids(engine, "Latest") == ["seldom", "rare"]


def test_files_are_dropped_when_no_join_needs_them(engine: Engine, run: InProcess) -> None:
    engine.execute(SHOWN)
    publish(engine, run, "Photos", "photo")
    publish(engine, run, "News", "photo")
    assert files_of_windows(engine) != []
    engine.execute("drop feed Shown cascade;")
    maintain(engine, run)
    assert files_of_windows(engine) == []
    assert list(engine.workspace.storage.local("windows").glob("*")) == []
