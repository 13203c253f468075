"""Expensive queries: their costs are sampled, they are listed with a hint, and each is logged once."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest
from tests.integration.in_process import InProcess
from typer.testing import CliRunner

from runnel.catalog.declared import feeds
from runnel.catalog.learned import query_costs, stream_statistics
from runnel.catalog.store.connection import now
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.engine.ask.slow_queries import HINTS
from runnel.engine.run.application_log import JsonLines
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.errors import NotFoundError
from runnel.model.learned.query_costs import Cost, Costs
from runnel.model.learned.stream_statistics import StreamSample
from runnel.testing import FakeClock

SCRIPT = """
register feed Wire;
create feed Rock tagged music from Wire where title contains 'rock';
create feed Dear tagged music from Wire where title matches '(?i)r[aeiou]ck.*live';
create feed Idle tagged music from Rock where title contains 'live';
subscribe to Rock output log; subscribe to Dear output log;
"""


def store_cost(engine: Engine, name: str, milliseconds: float, items: int = 200) -> None:
    """Store the costs of sampled items: a query takes this many milliseconds per thousand items."""
    with engine.workspace.catalog.write() as connection:
        feed = feeds.feed_by_name(connection, name)
        assert feed is not None
        cost = Cost(milliseconds * 1e3 * items, "RegularExpression", "title matches 'a'")
        query_costs.learn(connection, Costs(items, {feed.id: cost}), now(connection))
        stream_statistics.note(connection, {feed.id: StreamSample(1, {"rock": 1})})


def run_queries(engine: Engine, *words: str) -> str:
    result = CliRunner().invoke(app, ["queries", *words, "-w", str(engine.workspace.folder)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_matching_samples_query_costs(engine: Engine) -> None:
    engine.execute(SCRIPT)
    assert "no costs of these queries are known yet" in run_queries(engine, "--slow")
    engine.publish("Wire", [{"id": str(n), "title": f"rock live {n}"} for n in range(30)])
    run = InProcess(engine)
    run.match()
    run_maintenance(engine.workspace, run.epoch)
    document = {entry.query: entry for entry in engine.usage().slow}
    assert set(document) == {"Rock", "Dear"}
    assert document["Dear"].part == "title matches '(?i)r[aeiou]ck.*live'"
    assert document["Dear"].hint == HINTS["RegularExpression"]
    assert document["Dear"].milliseconds > document["Rock"].milliseconds
    assert not document["Dear"].is_slow, "a few items make no slow query"


def test_slow_query_is_listed_and_reported_once(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    store_cost(engine, "Dear", 60.0)
    store_cost(engine, "Rock", 0.1)
    with caplog.at_level(logging.WARNING, logger="runnel"):
        run_maintenance(engine.workspace, run.epoch)
        store_cost(engine, "Dear", 60.0)
        run_maintenance(engine.workspace, run.epoch)
        run_maintenance(engine.workspace, run.epoch)
    (record,) = [value for value in caplog.records if "takes about" in value.getMessage()]
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["feed"], line["owner"]) == ("warning", "Dear", "admin")
    assert "title matches 'a'" in line["event"]

    text = run_queries(engine, "--slow")
    assert "slow  Dear  (admin)  title matches 'a'" in text
    assert "add a condition that few items satisfy" in " ".join(text.split())
    assert text.index("Dear") < text.index("Rock")
    assert "without a match" not in text
    data = json.loads(run_queries(engine, "--slow", "--json", "--limit", "1"))
    assert [(entry["query"], entry["is_slow"]) for entry in data["slow"]] == [("Dear", True)]


def test_repaired_query_is_no_longer_listed(engine: Engine, clock: FakeClock) -> None:
    engine.execute(SCRIPT)
    run = InProcess(engine)
    store_cost(engine, "Dear", 60.0)
    run_maintenance(engine.workspace, run.epoch)
    assert [entry.query for entry in engine.usage().slow] == ["Dear"]
    clock.advance(timedelta(minutes=1))
    engine.execute("create or replace feed Dear from Wire where title contains 'rock';")
    assert engine.usage().slow == ()


def test_owner_sees_only_own_slow_queries_and_tags_select(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.owners.add("ann")
    ann = engine.acting_as("ann")
    ann.execute("create feed Mine tagged mine from Wire where title matches 'a+b'; subscribe to Mine output log;")
    run = InProcess(engine)
    store_cost(engine, "Dear", 60.0)
    with engine.workspace.catalog.write() as connection:
        mine = feeds.feed_by_name(connection, "Mine", ann.actor.owner)
        assert mine is not None
        cost = Costs(100, {mine.id: Cost(1e9, "RegularExpression", "title matches 'a+b'")})
        query_costs.learn(connection, cost, now(connection))
    run_maintenance(engine.workspace, run.epoch)
    assert [entry.query for entry in ann.usage().slow] == ["Mine"]
    assert [(entry.query, entry.owner) for entry in engine.usage().slow] == [("Mine", "ann"), ("Dear", "admin")]
    assert [entry.query for entry in engine.usage(tag="music").slow] == ["Dear"]
    with pytest.raises(NotFoundError, match="no query has the tag music"):
        ann.usage(tag="music")


def test_a_tag_lists_all_queries_that_have_it(engine: Engine) -> None:
    engine.execute(SCRIPT + "create feed Other from Wire; subscribe to Other output log;")
    engine.publish("Wire", [{"id": "1", "title": "rock"}])
    InProcess(engine).match()
    text = run_queries(engine, "--tag", "Music")
    assert "3 queries" in text
    assert "Other" not in text
    assert "1 without a subscription, so not matched:\n    Idle" in text
    data = json.loads(run_queries(engine, "--tag", "music", "--json"))
    assert (data["idle"], data["never"], data["busiest"]) == (["Idle"], ["Dear"], [{"feed": "Rock", "matches": 1}])
