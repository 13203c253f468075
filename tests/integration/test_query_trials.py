"""`runnel test`: a selection of queries gives the same result as all queries restricted to it, and writes nothing."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess
from typer.testing import CliRunner

from runnel.catalog.declared import tags
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.engine.trial.try_items import TrialResult
from runnel.errors import InputError, NotAllowedError, NotFoundError
from runnel.testing import FakeClock

SCRIPT = """
register feed Wire;
register feed Shop;
create feed Rock tagged music, loud from Wire where title contains 'rock';
create feed Live tagged Music from Rock where title contains 'live';
create feed Cheap tagged shop from Shop where price < 10;
create feed Idle from Wire where title contains 'jazz';
subscribe to Rock output log; subscribe to Cheap output log; subscribe to Live output log;
"""
ITEMS = [{"id": "1", "title": "rock live"}, {"id": "2", "title": "jazz"}, {"id": "3", "title": "rock"}]


def shown(trial: TrialResult) -> dict[str, tuple[str, ...]]:
    return {item.item.id: item.queries for item in trial.items}


@pytest.fixture
def declared(engine: Engine) -> Engine:
    engine.execute(SCRIPT)
    return engine


def test_all_queries_are_tested_with_or_without_subscription(declared: Engine) -> None:
    result = declared.test(ITEMS, feed="Wire")
    assert shown(result) == {"1": ("Rock", "Live"), "2": ("Idle",), "3": ("Rock",)}
    assert result.counts == (("Rock", 2), ("Idle", 1), ("Live", 1), ("Cheap", 0))
    assert result.looked_at == 3
    assert declared.workspace.items.last_sequence() == 0, "nothing is accepted"


def test_tag_and_names_select_queries(declared: Engine) -> None:
    assert shown(declared.test(ITEMS, tag="MUSIC")) == {"1": ("Rock", "Live"), "2": (), "3": ("Rock",)}
    assert shown(declared.test(ITEMS, tag="loud"))["1"] == ("Rock",)
    assert shown(declared.test(ITEMS, queries=["Idle"])) == {"1": (), "2": ("Idle",), "3": ()}
    assert shown(declared.test(ITEMS, tag="music", queries=["Idle", "Live"]))["1"] == ("Live",)


def test_what_selects_nothing_is_refused(declared: Engine) -> None:
    with pytest.raises(NotFoundError, match="no query has the tag musik") as missed:
        declared.test(ITEMS, tag="musik")
    assert missed.value.hint == "did you mean music?"
    with pytest.raises(NotFoundError, match="there is no feed Rokc"):
        declared.test(ITEMS, queries=("Rokc",))
    with pytest.raises(NotFoundError, match="among the named ones"):
        declared.test(ITEMS, tag="shop", queries=("Rock",))
    with pytest.raises(InputError, match="source feed and has no query"):
        declared.test(ITEMS, queries=("Wire",))
    with pytest.raises(InputError, match="the source feed of the items must be named"):
        declared.test(ITEMS)
    with pytest.raises(InputError, match="Rock is a virtual feed"):
        declared.test(ITEMS, feed="Rock")


def test_past_items_are_matched_from_before_the_query_and_while_it_is_paused(
    declared: Engine, clock: FakeClock
) -> None:
    declared.publish("Wire", ITEMS)
    InProcess(declared).match()
    clock.advance(timedelta(hours=1))
    declared.execute(
        "create feed Late tagged new from Wire where title contains 'rock'; subscribe to Late output log;"
    )
    declared.execute("pause feed Rock; create feed Reader tagged new from Rock; subscribe to Reader output log;")
    result = declared.test(tag="new")
    assert result.counts == (("Late", 2), ("Reader", 2))
    assert shown(result) == {"3": ("Late", "Reader"), "1": ("Late", "Reader")}
    assert list(shown(result)) == ["3", "1"], "the newest first"
    clock.advance(timedelta(days=1))
    assert declared.test(tag="new", since=timedelta(hours=1)).looked_at == 0
    assert declared.test(tag="new", since=timedelta(days=3), limit=1).more == 1


def test_preview_and_test_match_through_a_paused_feed(declared: Engine) -> None:
    declared.publish("Wire", ITEMS)
    declared.execute("create feed Reader from Rock; pause feed Rock;")
    assert declared.test(queries=["Reader"]).counts == (("Reader", 2),)
    assert declared.preview("Reader").matched == 2
    assert declared.preview("create feed New from Rock").matched == 2


def test_live_plan_and_separate_plan_give_the_same_result(declared: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    declared.publish("Wire", ITEMS)
    results = {}
    for pays in (True, False):
        monkeypatch.setattr("runnel.matching.compile.select_queries.compiling_pays", lambda *_, answer=pays: answer)
        results[pays] = declared.test(), declared.test(ITEMS, feed="Wire"), declared.test(tag="music")
    assert results[True] == results[False]
    assert results[True][0].counts == (("Rock", 2), ("Idle", 1), ("Live", 1), ("Cheap", 0))


def test_distinct_feed_considers_only_items_of_the_trial(declared: Engine) -> None:
    declared.execute("create feed Once tagged once from Wire distinct by title where title contains 'rock';")
    declared.execute("create feed After tagged once from Once; subscribe to After output log;")
    items = [{"id": str(n), "title": title} for n, title in enumerate(["rock", "jazz", "Rock", "rock live"], 1)]
    for _ in range(2):
        result = declared.test(items, tag="once")
        assert shown(result) == {"1": ("Once", "After"), "2": (), "3": (), "4": ("Once", "After")}
    declared.publish("Wire", items)
    InProcess(declared).match()
    assert declared.test(items, queries=["After", "Rock"]).counts == (("Rock", 3), ("After", 2))
    assert declared.test(tag="once").counts == (("After", 2), ("Once", 2))


def test_owner_tests_only_own_queries(declared: Engine) -> None:
    declared.owners.add("ann")
    ann = declared.acting_as("ann")
    ann.execute("create feed Mine tagged music from Wire where title contains 'rock';")
    assert ann.test(ITEMS, feed="Wire").counts == (("Mine", 2),)
    assert ann.test(ITEMS, tag="music").counts == (("Mine", 2),)
    assert ann.test(ITEMS, queries=("Rock",)).counts == (("Rock", 2),), "what all may read"
    with pytest.raises(NotFoundError, match="no query has the tag shop"):
        ann.test(ITEMS, tag="shop")
    with pytest.raises(NotAllowedError):
        ann.test(ITEMS, owner="operator")
    assert ann.test(ITEMS, owner="ann").counts == (("Mine", 2),)
    assert declared.test(ITEMS, owner="ann").counts == (("Mine of ann", 2),)
    with pytest.raises(NotFoundError, match="there is no owner bob"):
        declared.test(ITEMS, owner="bob")


def test_tags_follow_the_statement(declared: Engine) -> None:
    def tagged() -> dict[str, tuple[str, ...]]:
        with declared.workspace.catalog.read() as connection:
            rows = tags.live_queries(connection)
            results = tags.tags_of(connection, [row.id for row in rows])
            return {row.name: results[row.id] for row in rows if row.id in results}

    assert tagged() == {"Rock": ("loud", "music"), "Live": ("music",), "Cheap": ("shop",)}
    assert "tagged loud, music from Wire" in declared.show("Rock").lines[0]
    declared.execute("create or replace feed Rock tagged quiet from Wire; drop feed Cheap cascade;")
    assert tagged() == {"Rock": ("quiet",), "Live": ("music",)}
    declared.execute("create or replace feed Rock from Wire;")
    with declared.workspace.catalog.read() as connection:
        assert tags.known_tags(connection) == ["music"]
        assert tags.known_tags(connection, 99) == []
        assert tags.live_queries(connection, tag="shop") == []


def test_command_prints_matches_and_json(declared: Engine, tmp_path: Path) -> None:
    def run_test(*words: str, given: str = "", code: int = 0) -> str:
        result = CliRunner().invoke(app, ["test", *words, "-w", str(declared.workspace.folder)], input=given)
        assert result.exit_code == code, result.output
        return result.output

    lines = "\n".join(json.dumps(item) for item in ITEMS)
    text = run_test("-", "--feed", "Wire", given=lines)
    assert "3 of 4 queries matched at least one of 3 items" in text
    assert "without a match: Cheap" in text
    data = json.loads(run_test("-", "--tag", "loud", "--json", given=lines))
    assert data["items"][0] == {"feed": "Wire", "id": "1", "title": "rock live", "queries": ["Rock"]}
    assert data["matched"] == [{"feed": "Rock", "matches": 2}]
    (tmp_path / "items.jsonl").write_text(lines + "\n{broken")
    assert "refused: " in run_test(str(tmp_path / "items.jsonl"), "--query", "Rock")
    assert "of 0 items" in run_test("--tag", "music")
    assert "--feed requires a document" in run_test("--feed", "Wire", code=3)
    assert "did you mean shop?" in run_test("--tag", "shpo", code=6)
    assert declared.workspace.items.last_sequence() == 0
