"""`why` on feeds with joins: the window as of the item, the items that it joins, and those that come closest."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from tests.integration.gated_runs import logged as logged_items
from tests.integration.in_process import InProcess
from tests.integration.test_joins_of_workspaces import SETUP, SHOWN, joined_feeds, texts
from tests.unit.matching.gates.gated_worlds import SOURCES, START, logged

import runnel
from runnel.algebra.nodes.query import Gated, Read
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.algebra.semantics.joins import Join, window_of
from runnel.catalog.access import owners
from runnel.catalog.declared import feeds
from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.engine import Engine
from runnel.engine.ask.why import Why
from runnel.testing import FakeClock


@pytest.fixture(scope="module", autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace", clock=clock) as opened:
        yield opened


def explained(engine: Engine, item: str, feed: str = "Shown") -> tuple[Why, dict[str, Any]]:
    """Return the answer, and its only join as JSON."""
    answer = engine.why(item, feed)
    (join,) = json.loads(json.dumps(answer.to_json()))["joins"]
    return answer, join


def publish_photos(engine: Engine) -> None:
    engine.publish("Photos", texts("Muse live in Paris", "Muse in town", "Cooking pasta"))


def test_the_trace_shows_both_sides_of_an_item_that_joins(engine: Engine) -> None:
    engine.execute(SETUP)
    publish_photos(engine)
    engine.publish("News", texts("Muse live in Paris tonight"))
    InProcess(engine).match()
    answer, join = explained(engine, "Muse live in Paris tonight")
    assert answer.holds
    assert answer.recorded
    assert (join["join"], join["window"], join["count"]) == ("photos", {"extent": "last 3 days", "items": 3}, 1)
    (joined,) = join["joined"]
    assert (joined["feed"], joined["item"], joined["similarity"]) == ("Photos", "Muse live in Paris", 0.8)
    assert joined["trace"][-1] == "✓ comes from Photos"
    assert "photos: joins 1 of 3 items in the window" in "\n".join(answer.trace)
    assert not join["nearest"]


def test_an_item_that_joins_nothing_is_told_the_nearest_three(engine: Engine) -> None:
    engine.execute(SETUP)
    publish_photos(engine)
    engine.publish("Photos", texts("Muse in some other town that is not far away", "Old"))
    engine.publish("News", texts("Muse sings in Rome today"))
    InProcess(engine).match()
    answer, join = explained(engine, "Muse sings in Rome today")
    assert not answer.holds
    assert not answer.recorded
    assert [(item["item"], item["lacks"]) for item in join["nearest"]] == [
        ("Muse in town", ["title: similarity 0.33, needs 0.50"]),
        ("Muse live in Paris", ["title: similarity 0.29, needs 0.50"]),
        ("Muse in some other town that is not far away", ["title: similarity 0.15, needs 0.50"]),
    ]
    assert "no photo in the window is similar enough; nearest: Muse in town" in "\n".join(answer.trace)


def test_an_empty_window_and_a_window_of_other_items_are_told_apart(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SETUP)
    engine.publish("News", texts("first"))
    publish_photos(engine)
    clock.advance(timedelta(days=3))
    engine.publish("News", texts("Muse live in Paris"))
    InProcess(engine).match()
    for item in ("first", "Muse live in Paris"):
        answer, join = explained(engine, item)
        assert (join["window"]["items"], join["nearest"], answer.holds) == (0, [], False)
        assert "photos: no item is in the window" in "\n".join(answer.trace)


def test_values_that_differ_are_shown(engine: Engine) -> None:
    engine.execute(
        "register feed News; register feed Photos; create feed F from News as $n join last 2 items on Photos as $p"
        " with $n[band = window.artist and title similar window.title] where $p[category = 'rock'];"
    )
    engine.publish("Photos", texts("Muse live", artist="Muse", category="rock"))
    engine.publish("Photos", texts("Muse", artist="Oasis", category="pop"))
    engine.publish("News", texts("Muse live", band="Oasis"))
    answer, join = explained(engine, "Muse live", "F")
    assert join["window"] == {"extent": "last 2 items", "items": 1}
    (nearest,) = join["nearest"]
    assert nearest["lacks"] == ["band = window.artist fails: 'Oasis' and 'Muse'"]
    assert "✓ category = 'rock'  [rock]" in "\n".join(nearest["trace"])
    assert "no item in the window is related to the item; nearest: Muse live" in "\n".join(answer.trace)


def test_the_window_comes_from_its_files_if_the_log_is_too_long(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.engine.trial.find_stops.MOST_ITEMS", 2)
    monkeypatch.setattr("runnel.engine.ask.why.MOST_ITEMS", 2)
    engine.execute(SETUP)
    publish_photos(engine)
    run = InProcess(engine)
    run.match()
    clock.advance(timedelta(hours=1))
    engine.publish("News", texts("one", "two", "three", "Muse live in Paris", "Cooking"))
    run.match()
    answer, join = explained(engine, "Muse live in Paris")
    assert (answer.holds, answer.recorded, join["count"], join["window"]["items"]) == (True, True, 1, 3)
    answer, join = explained(engine, "Cooking")
    assert (answer.holds, answer.recorded, join["window"]["items"]) == (True, True, 3)
    answer, join = explained(engine, "three")
    assert (answer.holds, answer.recorded, join["window"]["items"], len(join["nearest"])) == (False, False, 3, 3)
    assert "gates were evaluated only on the 2 items before it, and on the stored items of windows" in answer.lines
    engine.execute(SHOWN.replace("create feed", "create or replace feed").replace("3 days", "2 days"))
    answer, join = explained(engine, "Muse live in Paris")
    assert (answer.holds, answer.recorded) == (True, True), "the match log decides"
    assert [item["item"] for item in join["joined"]] == ["Muse live in Paris"]


def test_items_of_feeds_that_an_owner_may_not_read_are_counted_but_not_shown(engine: Engine) -> None:
    engine.execute(SETUP)
    publish_photos(engine)
    engine.owners.add("ann")
    engine.owners.add("bob")
    ann = engine.acting_as("ann")
    ann.execute("subscribe to Shown output log;")
    engine.publish("News", texts("Muse live in Paris", "Weather"))
    InProcess(engine).match()
    # No statement lets a query read a feed that its readers may not read, so the feed changes hands in the catalog.
    with engine.workspace.catalog.write() as connection:
        photos, bob = feeds.feed_by_name(connection, "Photos"), owners.owner_by_name(connection, "bob")
        assert photos is not None
        connection.execute(update(schema.feeds).where(schema.feeds.c.id == photos.id).values(owner=bob.id))
    answer, join = explained(ann, "Muse live in Paris")
    assert answer.holds
    assert (join["count"], join["joined"], join["window"]["items"]) == (1, [], 3)
    answer, join = explained(ann, "Weather")
    assert (join["nearest"], join["window"]["items"]) == ([], 3)
    assert "pasta" not in json.dumps(answer.to_json())
    (match,) = ann.matches("Shown")
    assert (match.annotations[0].items, match.annotations[0].count) == ((), 1)


@settings(deadline=None, max_examples=15, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_why_and_tests_agree_with_the_match_log_and_the_definition_on_every_item(data: st.DataObject) -> None:
    statements = data.draw(joined_feeds())
    items = data.draw(logged())
    clock = FakeClock(START)
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory() as folder,
        runnel.connect(Path(folder) / "workspace", clock=clock) as engine,
    ):
        patch.setattr("runnel.streaming.window_store._FAN_IN", 2)
        engine.execute(" ".join(f"register feed {name};" for name in SOURCES.values()))
        for number, statement in enumerate(statements):
            engine.execute(f"{statement} subscribe to F{number} output log;")
        run = InProcess(engine, slice_items=3)
        before = START
        for item in items:
            clock.advance(item.accepted - before)
            before = item.accepted
            values = {name: value[0] for name, value in item.attributes.items()}
            engine.publish(SOURCES[item.feed], [{"id": str(item.sequence), **values}])
            if data.draw(st.booleans()):
                run.match()
        run.match()
        names = [f"F{number}" for number in range(len(statements))]
        verify_why(engine, names)
        for days in (0.25, 1.5, 100):
            verify_test(engine, names, timedelta(days=days))
        run.close()


def verify_why(engine: Engine, names: list[str]) -> None:
    """Assert that `why` agrees with the reference evaluator on all items, which have different ids."""
    with engine.workspace.catalog.read() as connection:
        definitions = feeds.definitions(connection)
        ids = {name: feed.id for name in names if (feed := feeds.feed_by_name(connection, name)) is not None}
    evaluated = list(evaluate_log(logged_items(engine), definitions, dict.fromkeys(definitions, 0)))
    for one in evaluated:
        for name in names:
            answer = engine.why(one.item.id, name)
            assert (answer.sequence, answer.holds, answer.recorded) == (
                one.item.sequence,
                *[ids[name] in one.feeds] * 2,
            )
            for join in answer.joins:
                node = cast(Gated, definitions[join.gate])
                window = cast(Read, node.window).feed
                earlier = [other.item for other in evaluated if window in other.feeds]
                assert join.members == len(window_of(one.item, earlier, cast(Join, node.rule).extent))
                joined = tuple(compared.item.sequence for compared in join.joined)
                assert joined == one.annotations.get(join.gate, {}).get(join.gate, ())
                assert join.count == len(joined)
                assert bool(joined) != (join.gate in one.stopped)
                assert all(compared.lacks for compared in join.nearest)


def verify_test(engine: Engine, names: list[str], back: timedelta) -> None:
    """Assert that a test of past items gives the matches and annotations of the reference evaluator."""
    with engine.workspace.catalog.read() as connection:
        definitions = feeds.definitions(connection)
        ids = {name: feed.id for name in names if (feed := feeds.feed_by_name(connection, name)) is not None}
        begin = now(connection) - back // timedelta(microseconds=1)
    after = engine.workspace.items.sequence_before(begin)
    evaluated = list(evaluate_log(logged_items(engine), definitions, dict.fromkeys(ids.values(), after)))
    answer = engine.test(since=back, limit=1_000)
    assert dict(answer.counts) == {name: sum(feed in one.feeds for one in evaluated) for name, feed in ids.items()}
    by_sequence = {one.item.sequence: one for one in evaluated}
    for tried in answer.items:
        one = by_sequence[tried.item.sequence or 0]
        for name, query in ids.items():
            annotations = one.annotations.get(query)
            joined = {number for several in annotations.values() for number in several} if annotations else set()
            assert {item.sequence for own in tried.annotations.get(name, ()) for item in own.items} == joined
