"""Operators from statement to match log and delivery, with a runner in this process.

The crash tests do the same on Spark, with runners that are killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.in_process import InProcess

from runnel.catalog.declared import feeds
from runnel.catalog.learned import operator_statistics
from runnel.catalog.logs import match_segments, undecided
from runnel.engine import Engine, connect
from runnel.errors import TooExpensiveError
from runnel.logs.items.supplements import log_again
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.streaming.worker import operator_work
from runnel.testing import FakeClock

MODULE = "tests.integration.city_operators"
SCRIPT = f"""
register feed Cameras;
register operator mobPattern(?people int) from '{MODULE}:mob_pattern' cost 40 ms reading people;
register operator boatCount(kind text, ?count int) from '{MODULE}:boats';
register operator alarming() from '{MODULE}:is_alarming' cost 1 ms;
create feed Mobs from Cameras where place = 'Bronx' and mobPattern(?people) and ?people > 50;
create feed Crowds from Cameras where mobPattern(?n) and ?n > 100;
create feed Tours from Cameras where boatCount('tour', ?y) and boatCount('coast guard', ?z) and ?y > 2 * ?z;
create feed Calm from Cameras where not alarming() and place exists;
create feed Both from Mobs | Calm;
subscribe to Mobs output log; subscribe to Crowds output log; subscribe to Tours output log;
subscribe to Calm output log; subscribe to Both output log;
"""
ITEMS: list[dict[str, Any]] = [
    {"id": "1", "place": "Bronx", "people": 60},
    {"id": "2", "place": "Bronx", "people": [40, 70, 120]},
    {"id": "3", "place": "Queens", "people": 500, "alarm": True},
    {"id": "4", "tour boats": [7, 3], "coast guard boats": 3},
    {"id": "5", "tour boats": 6, "coast guard boats": 3},
    {"id": "6", "place": "Bronx", "people": 80, "broken": True},
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    operator_work.operators.cache_clear()
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,)) as opened:
        OperatorEnvironment.of(opened.workspace.settings).keep(opened.workspace.storage)
        yield opened
    operator_work.operators.cache_clear()


def matched(engine: Engine) -> dict[str, list[str]]:
    """Return the feeds that each item matches, by item id. Retried items add to their first matches."""
    with engine.workspace.catalog.read() as connection:
        names = {feed.id: feed.name for feed in feeds.live_feeds(connection)}
    items = engine.workspace.items
    ids = {item.sequence: item.id for batch in items.read(0, items.last_sequence()) for item in batch.items({})}
    results: dict[str, list[str]] = {}
    for rows in engine.workspace.matches.read(0, items.last_sequence()):
        for row, sequence in enumerate(rows.sequences.tolist()):
            own = rows.queries[rows.offsets[row] : rows.offsets[row + 1]].tolist()
            if own:
                results.setdefault(ids[sequence], []).extend(sorted(names[query] for query in own))
    return results


def test_items_match_if_operators_are_true(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Cameras", ITEMS)
    InProcess(engine).match()
    assert matched(engine) == {
        "1": ["Both", "Calm", "Mobs"],
        "2": ["Both", "Calm", "Crowds", "Mobs"],
        "3": ["Crowds"],
        "4": ["Tours"],
        "6": ["Both", "Mobs"],
    }


def test_bindings_are_part_of_a_match(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Cameras", ITEMS)
    InProcess(engine).match()
    with engine.workspace.catalog.read() as connection:
        by_name = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    bound = engine.workspace.matches.bindings(by_name["Mobs"], [1, 2, 6])
    assert {sequence: [dict(row) for row in entry.rows] for sequence, entry in bound.items()} == {
        1: [{"people": 60.0}],
        2: [{"people": 70.0}, {"people": 120.0}],
        6: [{"people": 80.0}],
    }
    assert [dict(row) for row in engine.workspace.matches.bindings(by_name["Tours"], [4])[4].rows] == [
        {"y": 7.0, "z": 3.0}
    ]


def test_failed_call_is_reported_and_affects_no_other_query(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Cameras", ITEMS)
    InProcess(engine).match()
    rows = engine.show("quarantine").to_json()["quarantine"]
    assert [row["kind"] for row in rows] == ["operator"]
    assert "the camera is broken" in rows[0]["reason"]
    assert "operator alarming" in rows[0]["place"]
    with engine.workspace.catalog.read() as connection:
        assert undecided.undecided_count(connection) == 0
        learned = operator_statistics.learned_operators(connection)
    assert learned.operators["mobPattern 1"].calls > 0
    (alarming, _, mob) = engine.show("operators").to_json()["operators"]
    assert alarming["learned"]["failed"] > 0 == mob["learned"]["failed"]
    assert any("recently" in line for line in engine.show("operators").lines)


def test_temporary_failure_is_retried_only_for_undecided_queries(tmp_path: Path) -> None:
    operator_work.operators.cache_clear()
    clock = FakeClock(datetime.now(UTC))  # commits go by the clock of their own process
    file = tmp_path / "service"
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,), clock=clock) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        engine.execute(
            f"register feed Wire; register operator moody() from '{MODULE}:moody' on error retry for 1 hours;"
            "create feed Sure from Wire; create feed Maybe from Wire where moody();"
            "subscribe to Sure output log; subscribe to Maybe output log;"
        )
        engine.publish("Wire", [{"id": "a", "file": str(file)}])
        run = InProcess(engine)
        run.match()
        assert matched(engine) == {"a": ["Sure"]}
        root = engine.workspace
        assert log_again(root.catalog, root.storage, epoch=run.epoch) == 0
        clock.advance(timedelta(minutes=1))
        assert log_again(root.catalog, root.storage, epoch=run.epoch) == 1
        run.match()
        assert matched(engine) == {"a": ["Sure"]}, "still away"
        file.touch()
        operator_work.operators.cache_clear()  # what rests after failures would be asked later
        clock.advance(timedelta(minutes=2))
        assert log_again(root.catalog, root.storage, epoch=run.epoch) == 1
        run.match()
        assert matched(engine) == {"a": ["Sure", "Maybe"]}
        with root.catalog.read() as connection:
            assert undecided.undecided_count(connection) == 0
            assert match_segments.matched_upto(connection) == 3
        assert engine.show("quarantine").to_json()["quarantine"] == []
    operator_work.operators.cache_clear()


def test_retried_item_counts_once_for_from_last_and_preview(tmp_path: Path) -> None:
    operator_work.operators.cache_clear()
    clock = FakeClock(datetime.now(UTC))
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,), clock=clock) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        engine.execute(
            f"register feed Wire; register operator moody() from '{MODULE}:moody' on error retry for 1 hours;"
            "create feed Maybe from Wire where moody(); subscribe to Maybe output log; create feed All from Wire;"
        )
        engine.publish("Wire", [{"id": "a", "file": str(tmp_path / "never")}])
        run = InProcess(engine)
        run.match()
        clock.advance(timedelta(minutes=1))
        assert log_again(engine.workspace.catalog, engine.workspace.storage, epoch=run.epoch) == 1
        run.match()
        assert engine.preview("create feed New from Wire").matched == 1
        assert engine.test(queries=["All"]).counts == (("All", 1),)
    operator_work.operators.cache_clear()


def test_undecided_alternative_is_retried_once_for_two_failed_operators(tmp_path: Path) -> None:
    operator_work.operators.cache_clear()
    clock = FakeClock(datetime.now(UTC))
    file = tmp_path / "service"
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,), clock=clock) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        engine.execute(
            f"register feed Wire; register operator moody() from '{MODULE}:moody' on error retry for 1 hours;"
            f"register operator sad() from '{MODULE}:moody' release '2' on error retry for 2 hours;"
            f"register operator alarming() from '{MODULE}:is_alarming';"
            "create feed Either from Wire where alarming() or moody();"
            "create feed Both from Wire where moody() or sad();"
            "subscribe to Either output log; subscribe to Both output log;"
        )
        engine.publish("Wire", [{"id": "a", "file": str(file), "broken": True}])
        run = InProcess(engine)
        run.match()
        file.touch()
        operator_work.operators.cache_clear()
        clock.advance(timedelta(minutes=1))
        log_again(engine.workspace.catalog, engine.workspace.storage, epoch=run.epoch)
        run.match()
        assert sorted(matched(engine)["a"]) == ["Both", "Either"]
        assert engine.show("quarantine").to_json()["quarantine"] == []
    operator_work.operators.cache_clear()


def test_retry_behind_a_distinct_feed_is_reported(tmp_path: Path) -> None:
    operator_work.operators.cache_clear()
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,)) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        engine.execute(
            f"register feed Wire; register operator moody() from '{MODULE}:moody' on error retry for 1 hours;"
            "create feed Once from Wire distinct by title; create feed Maybe from Once where moody();"
            "subscribe to Maybe output log;"
        )
        engine.publish("Wire", [{"id": "a", "title": "x", "file": str(tmp_path / "never")}])
        InProcess(engine).match()
        (row,) = engine.show("quarantine").to_json()["quarantine"]
        assert "the gate of the query has already counted the item" in row["reason"]
        with engine.workspace.catalog.read() as connection:
            assert undecided.undecided_count(connection) == 0
    operator_work.operators.cache_clear()


def test_retries_end_after_the_declared_time(tmp_path: Path) -> None:
    operator_work.operators.cache_clear()
    clock = FakeClock(datetime.now(UTC))
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,), clock=clock) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        engine.execute(
            f"register feed Wire; register operator moody() from '{MODULE}:moody' on error retry for 1 seconds;"
            "create feed Maybe from Wire where moody(); subscribe to Maybe output log; create feed All from Wire;"
        )
        engine.publish("Wire", [{"id": "a", "file": str(tmp_path / "never")}])
        run = InProcess(engine)
        run.match()
        with engine.workspace.catalog.read() as connection:
            assert undecided.undecided_count(connection) == 1
        time.sleep(1.1)
        clock.advance(timedelta(minutes=1))
        assert log_again(engine.workspace.catalog, engine.workspace.storage, epoch=run.epoch) == 1
        run.match()
        (row,) = engine.show("quarantine").to_json()["quarantine"]
        assert "the service is away" in row["reason"]
        with engine.workspace.catalog.read() as connection:
            assert undecided.undecided_count(connection) == 0
    operator_work.operators.cache_clear()


def test_delivered_entries_have_their_bindings(engine: Engine) -> None:
    engine.execute(SCRIPT + "subscribe to Mobs output jsonl 'mobs.jsonl';")
    engine.publish("Cameras", ITEMS)
    run = InProcess(engine)
    run.match()
    run.deliver()
    lines = [json.loads(line) for line in (engine.workspace.folder / "out" / "mobs.jsonl").read_text().splitlines()]
    assert {line["id"]: line["bindings"] for line in lines} == {
        "1": [{"people": 60}],
        "2": [{"people": 70}, {"people": 120}],
        "6": [{"people": 80}],
    }


def test_why_calls_operators_again_and_shows_recorded_bindings(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Cameras", ITEMS)
    InProcess(engine).match()
    explanation = engine.why("2", "Mobs")
    assert explanation.to_json()["holds"]
    assert explanation.to_json()["bindings"] == [{"people": 70}, {"people": 120}]
    text = "\n".join(explanation.lines)
    assert "✓ mobPattern(?people)" in text
    assert "✓ ?people > 50" in text
    assert "where ?people = 70" in text
    assert engine.why("4", "Tours").to_json()["bindings"] == [{"y": 7, "z": 3}]
    unknown = engine.why("6", "Calm")
    assert not unknown.to_json()["holds"]
    assert "alarming(): unknown" in "\n".join(unknown.lines)
    assert "the camera is broken" in "\n".join(unknown.lines)


def test_previews_and_trials_call_operators(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Cameras", ITEMS)
    preview = engine.preview("create feed Some from Cameras where mobPattern(?n) and ?n > 60")
    assert preview.matched == 3
    broken = engine.test([{**ITEMS[5], "feed": "Cameras"}])
    assert any("the camera is broken" in failure for failure in broken.failures)
    trial = engine.test([{**value, "feed": "Cameras"} for value in ITEMS[:4]])
    assert [sorted(item.queries) for item in trial.items] == [
        ["Both", "Calm", "Mobs"],
        ["Both", "Calm", "Crowds", "Mobs"],
        ["Crowds"],
        ["Tours"],
    ]


def test_preview_reports_its_cost_before_calling_operators(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Cameras", ITEMS)
    texts: list[str] = []
    query = "create feed Some from Cameras where place = 'Bronx' and mobPattern(?n) and ?n > 60"
    preview = engine.preview(query, tell=texts.append)
    assert texts == ["operators are called for about 3 items, about 3 calls in 0.12 s"]
    assert preview.cost is not None
    assert preview.to_json()["operators"]["calls"] == 3
    assert engine.preview("create feed Some from Cameras where place = 'Bronx'", tell=texts.append).cost is None


def test_too_expensive_preview_calls_no_operator(tmp_path: Path) -> None:
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,), preview_operator_seconds=0.05) as engine:
        engine.execute(SCRIPT)
        engine.publish("Cameras", ITEMS)
        with pytest.raises(TooExpensiveError, match="6 items"):
            engine.preview("create feed Some from Cameras where mobPattern(?n)")


def test_too_expensive_test_of_past_items_calls_no_operator(tmp_path: Path) -> None:
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,), preview_operator_seconds=0.3) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        engine.execute(
            f"{SCRIPT} register operator endless() from '{MODULE}:endless' cost 10 seconds;"
            "create feed Never from Cameras where endless();"
            "create feed Reader from Never where place = 'Bronx';"
        )
        engine.publish("Cameras", ITEMS)
        day = timedelta(days=1)
        # 6 items at 40 ms are within the limit, and two such queries are not, since each is judged alone.
        assert dict(engine.test(queries=["Crowds"], since=day).counts) == {"Crowds": 2}
        engine.execute("create feed More from Cameras where mobPattern(?n) and ?n > 1;")
        with pytest.raises(TooExpensiveError, match=r"these queries .* 0\.3 seconds") as refused:
            engine.test(queries=["Crowds", "More"], since=day)
        assert "fewer days" in (refused.value.hint or "")
        for name in ("Never", "Reader"):
            with pytest.raises(TooExpensiveError, match=f"the operators of {name}"):
                engine.test(queries=[name], since=day)
        engine.execute("".join(f"create feed C{n} from Cameras where mobPattern({n});" for n in range(20)))
        with pytest.raises(TooExpensiveError, match="at most 20"):
            engine.test(since=day)


def test_explain_shows_disjuncts_calls_and_orders(engine: Engine) -> None:
    engine.execute(SCRIPT)
    explained = engine.explain("Tours")
    (disjunct,) = explained.to_json()["operators"]["disjuncts"]
    assert disjunct == "boatCount('coast guard', ?z) and boatCount('tour', ?y) and ?y > 2 * ?z"
    assert {call["call"] for call in explained.to_json()["operators"]["calls"]} == {
        "boatCount('coast guard', …)",
        "boatCount('tour', …)",
    }
    assert {entry["order"] for entry in explained.to_json()["operators"]["shared"]} >= {"adaptive", "static_greedy"}
    assert any("then operators decide: boatCount" in line for line in explained.lines)
    (mob,) = engine.explain("Mobs").to_json()["operators"]["calls"]
    assert mob["others"] == 2
    assert mob["seconds"] == pytest.approx(0.04)
    assert all(len(line) <= 80 or line.startswith("create feed") for line in engine.explain("Mobs").lines)
    assert engine.explain("Cameras").to_json()["operators"] is None


def test_repeated_batch_records_observations_once(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.publish("Cameras", ITEMS)
    run = InProcess(engine)
    start = run.offset
    run.match()
    before = matched(engine)
    run.commit(start, run.offset, 0)
    assert matched(engine) == before
    assert len(engine.show("quarantine").to_json()["quarantine"]) == 1


def test_distinct_feed_with_operators(engine: Engine) -> None:
    engine.execute(
        SCRIPT + "create feed Once from Mobs distinct by place; create feed Late from Once where mobPattern(?m) "
        "and ?m > 100; subscribe to Once output log; subscribe to Late output log;"
    )
    engine.publish("Cameras", ITEMS)
    run = InProcess(engine)
    run.match()
    results = matched(engine)
    assert [key for key, names in results.items() if "Once" in names] == ["1"]
    assert not any("Late" in names for names in results.values())
    engine.execute("create or replace feed Mobs from Cameras where mobPattern(?people) and ?people > 50;")
    engine.publish("Cameras", [{"id": "7", "place": "Harlem", "people": 300}])
    run.match()
    assert matched(engine)["7"] == ["Both", "Calm", "Crowds", "Late", "Mobs", "Once"]
    (late,) = list(engine.matches("Late"))
    assert [dict(row) for row in late.bindings.rows] == [{"m": 300.0}]
