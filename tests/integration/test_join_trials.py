"""Joins outside the stream: previews, tests and back-fills give the matches and annotations of the definition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import func, select, update
from tests.integration.in_process import InProcess
from tests.integration.test_joins_of_workspaces import SETUP, SHOWN, texts

import runnel
from runnel.catalog.access import owners
from runnel.catalog.declared import feeds
from runnel.catalog.store import schema
from runnel.engine import Engine
from runnel.errors import InputError
from runnel.testing import FakeClock, MemorySink

DAY = timedelta(days=1)


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "workspace", clock=clock) as opened:
        yield opened


def publish_days(engine: Engine, clock: FakeClock) -> None:
    """Publish a photo, two days later a similar news item, and an hour later another photo with its title."""
    engine.execute("register feed News; register feed Photos;")
    engine.publish("Photos", texts("Muse live in Paris", "Cooking pasta"))
    clock.advance(2 * DAY)
    engine.publish("News", texts("Muse live in Paris tonight", "Weather"))
    clock.advance(timedelta(hours=1))
    engine.publish("Photos", texts("Weather"))


def joined(answer: Any) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(json.dumps(answer.to_json())))


def test_a_preview_begins_one_window_earlier_and_shows_annotations(engine: Engine, clock: FakeClock) -> None:
    publish_days(engine, clock)
    before = counts(engine)
    answer = engine.preview(SHOWN, since=DAY)
    assert (answer.looked_at, answer.matched) == (3, 1)
    (shown,) = joined(answer)["newest"]
    assert shown["annotations"]["photos"]["count"] == 1
    assert [item["id"] for item in shown["annotations"]["photos"]["items"]] == ["Muse live in Paris"]
    assert "  photos: Muse live in Paris" in answer.lines
    assert "these items only" not in answer.message
    assert engine.preview(SHOWN.replace("3 days", "2 days"), since=DAY).matched == 0, "exactly two days are too old"
    assert counts(engine) == before, "nothing is written"


def counts(engine: Engine) -> list[int]:
    """Return the number of rows of every table of the catalog."""
    with engine.workspace.catalog.read() as connection:
        tables = schema.metadata.sorted_tables
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]


def test_a_preview_says_which_clauses_it_applied_only_to_its_items(engine: Engine, clock: FakeClock) -> None:
    publish_days(engine, clock)
    distinct = SHOWN.replace("[title similar window.title]", "[title similar window.title] distinct by title")
    answer = engine.preview(distinct, since=DAY)
    assert answer.matched == 1
    assert "`distinct by title` was applied to these items only" in answer.message
    assert "join" not in answer.message


def test_a_preview_counts_only_the_items_of_the_time_span(engine: Engine, clock: FakeClock) -> None:
    publish_days(engine, clock)
    copied = "create feed Copied from Photos as $p join last 9 items on Photos with $p[title != window.title];"
    assert engine.preview(copied, since=DAY).matched == 1
    assert engine.preview(copied, since=7 * DAY).matched == 2


def test_a_test_of_past_items_has_windows_from_before_them(engine: Engine, clock: FakeClock) -> None:
    publish_days(engine, clock)
    engine.execute(f"{SHOWN} create feed Paris from Shown where title contains 'paris';")
    answer = engine.test(since=DAY)
    assert answer.counts == (("Paris", 1), ("Shown", 1))
    (item,) = joined(answer)["items"]
    assert {name: own["photos"]["count"] for name, own in item["joined"].items()} == {"Shown": 1, "Paris": 1}
    assert "    photos: Muse live in Paris" in answer.lines


def test_given_items_are_not_tested_against_joins(engine: Engine) -> None:
    engine.execute(f"{SETUP} create feed Paris from Shown; create feed Plain from News where title contains 'muse';")
    for queries in (["Shown"], ["Plain", "Paris"]):
        with pytest.raises(InputError, match="cannot be tested on given items: its joins compare them") as refused:
            engine.test(texts("Muse"), feed="News", queries=queries)
        assert "runnel test --days" in str(refused.value.hint)
    answer = engine.test(texts("Muse"), feed="News")
    assert answer.counts == (("Plain", 1),)
    assert [failure.partition(" cannot")[0] for failure in answer.failures] == ["Shown", "Paris"]


def test_a_subscription_that_starts_in_the_past_gets_annotations(engine: Engine, clock: FakeClock) -> None:
    publish_days(engine, clock)
    engine.execute(f"{SHOWN} subscribe to Shown output memory 'past' from last 1 days;")
    run = InProcess(engine)
    assert run.run() == 1
    engine.publish("News", texts("Weather today"))
    run.run()
    first, second = [item for delivery in MemorySink.delivered("past") for item in delivery.items]
    assert (first.item.id, second.item.id) == ("Muse live in Paris tonight", "Weather today")
    for delivered, photo in ((first, "Muse live in Paris"), (second, "Weather")):
        (photos,) = delivered.annotations
        assert (photos.name, [item.id for item in photos.items], photos.count) == ("photos", [photo], 1)
    run.close()


def test_joined_items_that_an_owner_may_not_read_are_counted_but_not_shown(engine: Engine) -> None:
    engine.execute(SETUP)
    engine.publish("Photos", texts("Muse live in Paris"))
    engine.publish("News", texts("Muse live in Paris tonight"))
    engine.owners.add("ann")
    engine.owners.add("bob")
    # No statement lets a query read a feed that its readers may not read, so the feed changes hands in the catalog.
    with engine.workspace.catalog.write() as connection:
        photos, bob = feeds.feed_by_name(connection, "Photos"), owners.owner_by_name(connection, "bob")
        assert photos is not None
        connection.execute(update(schema.feeds).where(schema.feeds.c.id == photos.id).values(owner=bob.id))
    ann = engine.acting_as("ann")
    ann.execute("create feed Mine from Shown;")
    (previewed,) = joined(ann.preview("Shown"))["newest"]
    (tested,) = joined(ann.test(queries=["Mine"]))["items"]
    for shown in (previewed["annotations"], tested["joined"]["Mine"]):
        assert shown["photos"] == {"items": [], "count": 1}


def test_owners_get_only_their_own_items_in_annotations(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both owners join feeds with the same name, so that their statements are equal. Their windows are not."""
    monkeypatch.setattr(MemorySink, "is_for_owners", True)
    engine.execute("register feed News;")
    for name in ("ann", "bob"):
        engine.owners.add(name)
    owned = {name: engine.acting_as(name) for name in ("ann", "bob")}
    for name, own in owned.items():
        own.execute(f"register feed Photos; {SHOWN} subscribe to Shown output memory '{name}';")
        own.publish("Photos", [{"id": f"{name}'s", "title": "Muse live in Paris"}])
    engine.publish("News", texts("Muse live in Paris"))
    run = InProcess(engine)
    run.run()
    for name, own in owned.items():
        (delivery,) = MemorySink.delivered(name)
        (photos,) = delivery.items[0].annotations
        assert ([item.id for item in photos.items], photos.count) == ([f"{name}'s"], 1)
        (match,) = own.matches("Shown")
        assert [item.id for item in match.annotations[0].items] == [f"{name}'s"]
        other = "bob" if name == "ann" else "ann"
        for answer in (own.why("Muse live in Paris", "Shown"), own.preview("Shown"), own.explain("Shown")):
            assert f"{other}'s" not in json.dumps(answer.to_json())
    run.close()
