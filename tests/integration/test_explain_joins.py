"""`explain` of feeds with joins: the sides, the window, the cost model of RoSeS, and the counters behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.in_process import InProcess
from tests.integration.test_joins_of_workspaces import SETUP, SHOWN, texts

import runnel
from runnel.catalog.declared import feeds
from runnel.catalog.logs.join_work import work_of_joins
from runnel.catalog.store import leases
from runnel.engine import Engine
from runnel.engine.ask.slow_queries import sample_costs
from runnel.engine.ask.vitals import read_vitals
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.model.gate_work import GateWork
from runnel.testing import FakeClock

RARE = [f"photo{number} of a band" for number in range(6)]


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    with runnel.connect(tmp_path / "workspace", clock=clock) as opened:
        yield opened


def joins(engine: Engine, name: str = "Shown") -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(json.dumps(engine.explain(name).to_json()))["joins"]
    return shown


def text_of(engine: Engine, name: str = "Shown") -> str:
    """Return the text of the answer in one line."""
    return " ".join(" ".join(engine.explain(name).lines).split())


def counted_work(engine: Engine) -> dict[str, GateWork]:
    with engine.workspace.catalog.read() as connection:
        names = feeds.feed_names(connection)
        return {names[feed]: counted.work for feed, counted in work_of_joins(connection).items()}


def without_time(work: GateWork) -> tuple[int, ...]:
    assert work.nanoseconds > 0
    return work.items, work.passed, work.candidates, work.joined


def test_explain_shows_table_1_next_to_what_was_measured(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SETUP)
    engine.publish("Photos", texts(*RARE))
    clock.advance(timedelta(days=1))
    engine.publish("News", texts("photo3 of a band", "photo4 and more words than photos have", "nothing"))
    InProcess(engine).match()
    (join,) = joins(engine)
    assert (join["name"], join["feed"], join["primary"]) == ("photos", "Shown", "News")
    window = join["window"]
    assert (window["source"], window["extent"], window["items"], window["queries"]) == ("Photos", "last 3 days", 6, 1)
    assert window["bytes"] > 0
    assert window["oldest"].startswith("2026-01-01T00:00:00")
    assert join["condition"] == "title similar window.title"
    assert join["index"] == "rare words of window.title"
    assert (join["reached"], join["per_day"], join["nested_loop"]) == (3, 3.0, 6)
    assert join["selectivity"] == pytest.approx(1 / 3)
    assert join["measured"] < join["nested_loop"]
    assert 1 <= join["expected"] <= 6
    shown = text_of(engine)
    assert "join photos of Shown: News with the last 3 days of Photos pairs: title similar window.title" in shown
    assert "R(b): 3 items, 3.0 per day; sel(p): 33.3% of them pass" in shown
    assert "S(w): 6 comparisons per item in a nested loop, R(b)·S(w): 18" in shown
    assert "index: estimated " in shown
    clock.advance(timedelta(days=2))
    engine.publish("News", texts("later"))
    InProcess(engine).match()
    assert joins(engine)[0]["window"]["items"] == 0, "the photos are three days old"


def test_explain_shows_both_sides_as_declared_and_every_join(engine: Engine) -> None:
    engine.execute(
        "register feed News; register feed Blog; register feed Photos; create feed F from (News as $n | Blog) as $all"
        " join last 2 items on Photos as $p with $n[band = window.artist or title = window.title]"
        " join last 1 days on (Photos | News) as $b with $all[price < window.price and link shares window.link]"
        " where $p[category = 'rock'] and $n[language = 'en'];"
    )
    first, second = joins(engine, "F")
    sides = {join["name"]: (join["primary"], join["window"]["source"], join["index"]) for join in (first, second)}
    assert sides["p"] == (
        "News[language = 'en']",
        "Photos[category = 'rock']",
        "equal values of window.artist and equal values of window.title",
    )
    assert sides["b"][1:] == ("(Photos | News)", "links in window.link")
    assert first["reached"] is None
    assert "window: not filled; it is when an item first reaches the join" in text_of(engine, "F")
    assert "hidden" not in text_of(engine, "F")


def test_a_condition_without_an_index_compares_with_the_whole_window(engine: Engine) -> None:
    engine.execute(
        "register feed News; register feed Photos; create feed F from News as $n join last 5 items on Photos as $p"
        " with $n[price < window.price]; subscribe to F output log;"
    )
    engine.publish("Photos", [{"id": str(price), "price": price} for price in range(4)])
    engine.publish("News", [{"id": "n", "price": 1}])
    InProcess(engine).match()
    (join,) = joins(engine, "F")
    assert (join["index"], join["measured"], join["joined"], join["nested_loop"]) == (None, 4.0, 2.0, 4)
    assert "no index, so every item of the window is one" in text_of(engine, "F")


def test_owners_learn_neither_of_the_queries_nor_of_the_windows_of_others(engine: Engine) -> None:
    engine.execute(SETUP)
    for name in ("ann", "bob"):
        engine.owners.add(name)
        own = engine.acting_as(name)
        own.execute(SHOWN.replace("Shown", f"Of{name}"))
    engine.acting_as("bob").execute("subscribe to Ofbob output log;")
    engine.publish("Photos", texts("Muse"))
    engine.publish("News", texts("Muse"))
    InProcess(engine).match()
    assert joins(engine)[0]["window"]["queries"] == 3, "the admin sees all queries"
    ann = engine.acting_as("ann")
    (join,) = joins(ann, "Ofann")
    assert (join["window"]["items"], join["window"]["queries"], join["reached"]) == (None, 2, None)
    assert "bob" not in json.dumps(ann.explain("Ofann").to_json())
    (join,) = joins(engine.acting_as("bob"), "Ofbob")
    assert (join["window"]["items"], join["window"]["queries"], join["reached"]) == (1, 2, 1)


def test_work_is_counted_once_per_batch_and_forgotten_with_the_feed(engine: Engine) -> None:
    engine.execute(f"{SETUP} {SHOWN.replace('Shown', 'Same')} subscribe to Same output log;")
    engine.publish("Photos", texts("Muse live", "Cooking"))
    engine.publish("News", texts("Muse live"))
    run = InProcess(engine)
    start = run.offset
    run.match()
    run.commit(start, run.offset, 0)
    counted = counted_work(engine)
    assert {name: without_time(work) for name, work in counted.items()} == {
        "Shown": (1, 1, 1, 1),
        "Same": (1, 1, 1, 1),
    }
    assert (engine.status().joins.items, engine.status().joins.candidates) == (2, 2)
    engine.publish("News", texts("Muse", "Weather"))
    run.match()
    assert without_time(counted_work(engine)["Shown"]) == (3, 2, 2, 2)
    engine.execute(SHOWN.replace("create feed", "create or replace feed").replace("3 days", "2 days"))
    engine.publish("News", texts("Muse live here"))
    run.match()
    assert without_time(counted_work(engine)["Shown"]) == (1, 1, 1, 1), "another join is counted from the start"
    engine.execute("drop feed Same cascade;")
    run_maintenance(engine.workspace, run.epoch, at_least=1_000)
    assert list(counted_work(engine)) == ["Shown"]
    with engine.workspace.catalog.write() as connection:
        leases.release(connection, run.lease)


def test_candidates_of_joins_are_work_of_the_query(engine: Engine) -> None:
    engine.execute(f"{SETUP} create feed Plain from News where title contains 'muse'; subscribe to Plain output log;")
    engine.publish("Photos", texts(*RARE))
    engine.publish("News", texts(*RARE))
    run = InProcess(engine)
    run.match()
    sample_costs(engine.workspace, run.epoch)
    slow = {query.query: query for query in engine.usage().slow}
    assert slow["Shown"].part == "join last 3 days with [title similar window.title]"
    assert slow["Shown"].milliseconds > 0


def test_status_and_metrics_count_windows_and_comparisons(engine: Engine) -> None:
    engine.execute(SETUP)
    assert not [line for line in engine.status().lines() if line.startswith("windows")]
    engine.publish("Photos", texts(*RARE))
    engine.publish("News", texts("photo1 of a band"))
    InProcess(engine).match()
    figures = read_vitals(engine.workspace).joins
    assert (figures.windows, figures.window_items, figures.items) == (1, 6, 1)
    assert figures.window_bytes > 0
    assert 1 <= figures.candidates <= 6
    (line, *_) = [line for line in engine.status().lines() if line.startswith("windows")]
    assert line.startswith("windows        1 with 6 items in ")
    assert engine.status().to_json()["joins"]["candidates"] == figures.candidates
