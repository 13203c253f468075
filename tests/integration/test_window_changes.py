"""Windows whose definition changes between items: they have the past items that their new definition gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess, matched_ids
from tests.integration.test_joins_of_workspaces import filled_windows, texts

import runnel
from runnel.engine import Engine
from runnel.streaming import fill_windows
from runnel.testing import FakeClock

SELECTED = "create or replace feed Selected from Photos where price > {};"
SETUP = f"""
register feed News;
register feed Photos tagged pictures;
register feed Drawings;
{SELECTED.format(1)}
create feed Shown from News as $n join last 3 days on Selected as $photos with $n[title = window.title];
subscribe to Shown output log;
"""


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace", clock=clock) as opened:
        yield opened


@pytest.fixture
def run(engine: Engine) -> Iterator[InProcess]:
    engine.execute(SETUP)
    opened = InProcess(engine)
    yield opened
    opened.close()


def publish(engine: Engine, run: InProcess, feed: str, *titles: str, price: int = 5) -> None:
    """Publish items, and match them in a batch of their own."""
    engine.publish(feed, texts(*titles, price=price))
    run.match()


def fill(engine: Engine, run: InProcess) -> None:
    """Fill the window of Shown, in which the photo `old` is."""
    publish(engine, run, "Photos", "old")
    publish(engine, run, "News", "old")
    assert matched_ids(engine, "Shown") == ["old"]
    assert len(filled_windows(engine)) == 1


def test_window_has_items_of_time_when_its_feed_was_defined_differently(engine: Engine, run: InProcess) -> None:
    """The definition changes and changes back, and no item needs the window in between."""
    fill(engine, run)
    engine.execute(SELECTED.format(100))
    publish(engine, run, "Photos", "between")
    engine.execute(SELECTED.format(1))
    publish(engine, run, "News", "between")
    assert matched_ids(engine, "Shown") == ["old", "between"]


def test_window_has_items_of_time_when_its_feed_was_paused(engine: Engine, run: InProcess) -> None:
    fill(engine, run)
    engine.execute("pause feed Selected;")
    publish(engine, run, "Photos", "between")
    engine.execute("resume feed Selected;")
    publish(engine, run, "News", "between")
    assert matched_ids(engine, "Shown") == ["old", "between"]


def test_window_over_a_paused_feed_is_empty(engine: Engine, run: InProcess) -> None:
    fill(engine, run)
    engine.execute("pause feed Selected;")
    engine.publish("News", [{"id": "again", "title": "old"}])
    run.match()
    assert matched_ids(engine, "Shown") == ["old"]


def test_window_has_items_from_before_its_join_was_paused(engine: Engine, run: InProcess) -> None:
    fill(engine, run)
    engine.execute("pause feed Shown;")
    publish(engine, run, "Photos", "between")
    publish(engine, run, "News", "between")
    engine.execute("resume feed Shown;")
    engine.publish("News", [{"id": "later", "title": "between"}, {"id": "latest", "title": "old"}])
    run.match()
    assert matched_ids(engine, "Shown") == ["old", "later", "latest"]


def test_window_over_a_group_follows_the_tags_of_feeds(engine: Engine, run: InProcess) -> None:
    """The window has the past items of feeds that join the group, and none of those that leave it."""
    engine.execute(
        "create feed Tagged from News as $n join last 3 days on all feeds tagged pictures as $photos"
        " with $n[title = window.title]; subscribe to Tagged output log;"
    )
    publish(engine, run, "Photos", "photo")
    publish(engine, run, "Drawings", "drawing")
    publish(engine, run, "News", "photo", "drawing")
    assert matched_ids(engine, "Tagged") == ["photo"]
    engine.execute("tag feed Drawings as pictures; tag feed Photos as others;")
    engine.publish("News", [{"id": "n3", "title": "photo"}, {"id": "n4", "title": "drawing"}])
    run.match()
    assert matched_ids(engine, "Tagged") == ["photo", "n4"]


def test_new_feed_of_a_group_does_not_fill_the_window_again(engine: Engine, run: InProcess) -> None:
    """A feed without items changes nothing, so registering thousands of feeds costs nothing."""
    engine.execute(
        "create feed All from News as $n join last 3 days on all feeds as $photos"
        " with $n[title = window.title]; subscribe to All output log;"
    )
    publish(engine, run, "Photos", "photo")
    publish(engine, run, "News", "photo")
    before = filled_windows(engine)
    engine.execute("register feed Paintings;")
    publish(engine, run, "Paintings", "painting")
    publish(engine, run, "News", "painting")
    assert [each.key for each in filled_windows(engine)] == [each.key for each in before]
    assert "painting" in matched_ids(engine, "All")


def test_batch_that_fills_a_window_while_it_is_redefined_does_not_store_it(engine: Engine, run: InProcess) -> None:
    engine.publish("Photos", texts("old", price=5))
    engine.publish("News", texts("old"))
    start, end = run.offset, run.reader.latestOffset(run.offset, None)
    engine.execute(SELECTED.format(100) + SELECTED.format(1))  # while the batch of the earlier plan is matched
    engine.publish("Photos", texts("between", price=5))
    with pytest.MonkeyPatch.context() as patch:
        fill_window = fill_windows._fill

        def redefine(*arguments: object) -> object:
            filled = fill_window(*arguments)  # type: ignore[arg-type]
            engine.execute(SELECTED.format(100) + SELECTED.format(1))
            return filled

        patch.setattr(fill_windows, "_fill", redefine)
        run.commit(start, end, 0)
    run.offset, run.batches = end, 1
    assert filled_windows(engine) == []
    run.match()
    publish(engine, run, "News", "between")
    assert matched_ids(engine, "Shown") == ["old", "between"]
