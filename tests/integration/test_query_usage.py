"""`runnel queries`: the queries with many matches and with none."""

from __future__ import annotations

import json

import pytest
from tests.integration.in_process import InProcess
from typer.testing import CliRunner

from runnel.cli.main import app
from runnel.engine import Engine
from runnel.errors import InputError

SCRIPT = """
register feed Wire;
create feed Rock from Wire where title contains 'rock';
create feed Live from Rock where title contains 'live';
create feed Rokc from Wire where title contains 'rokc';
create feed Idle from Wire where title contains 'rock';
subscribe to Rock output log; subscribe to Live output log; subscribe to Rokc output log;
"""


def publish_titles(engine: Engine, *titles: str, first: int = 1) -> None:
    engine.publish("Wire", [{"id": str(first + n), "title": title} for n, title in enumerate(titles)])


def test_matches_are_counted_for_subscribed_queries_only(engine: Engine) -> None:
    engine.execute(SCRIPT)
    publish_titles(engine, "rock", "rock live", "jazz", "live")
    InProcess(engine).match()
    usage = engine.usage()
    assert usage.busiest == (("Rock", 2), ("Live", 1))
    assert usage.never == ("Rokc",)
    assert (usage.after, usage.upto, usage.whole, usage.newer) == (0, 4, True, 0)
    assert "items 1 to 4; no older item is retained" in usage.range()


def test_only_the_newest_items_are_counted_and_the_range_is_stated(engine: Engine) -> None:
    engine.execute(SCRIPT)
    publish_titles(engine, "rokc", "rock", "rock live", "jazz")
    InProcess(engine, max_batch_items=2).match()
    usage = engine.usage(2)
    assert usage.busiest == (("Live", 1), ("Rock", 1))
    assert usage.never == ("Rokc",)
    assert "items 3 to 4; older items were not counted" in usage.range()
    assert engine.usage(4).never == ()
    with pytest.raises(InputError):
        engine.usage(0)


def test_before_the_first_item_all_queries_are_new(engine: Engine) -> None:
    engine.execute(SCRIPT)
    usage = engine.usage()
    assert (usage.counts, usage.newer) == ((), 3)
    assert usage.range() == "no retained item has been matched"
    publish_titles(engine, "rock")
    InProcess(engine).match()
    engine.execute("create feed Late from Wire; subscribe to Late output log;")
    assert engine.usage().newer == 1
    assert engine.usage().never == ("Live", "Rokc")


def test_owner_sees_only_own_queries(engine: Engine) -> None:
    engine.execute(SCRIPT)
    engine.owners.add("ann")
    ann = engine.acting_as("ann")
    ann.execute("create feed Mine from Wire where title contains 'jazz'; subscribe to Mine output log;")
    ann.execute("create feed Other from Wire where title contains 'zydeco'; subscribe to Other output log;")
    publish_titles(engine, "rock", "jazz")
    InProcess(engine).match()
    own = ann.usage()
    assert (own.busiest, own.never) == ((("Mine", 1),), ("Other",))
    assert ("Mine of ann", 1) in engine.usage().busiest
    assert "Other of ann" in engine.usage().never


def test_command_lists_queries_with_and_without_matches(engine: Engine) -> None:
    engine.execute(SCRIPT)
    publish_titles(engine, "rock", "rock live")
    InProcess(engine).match()

    def run_queries(*words: str) -> str:
        result = CliRunner().invoke(app, ["queries", *words, "-w", str(engine.workspace.folder)])
        assert result.exit_code == 0, result.output
        return result.stdout

    both = run_queries()
    assert "2 with matches" in both
    assert "1 without a match" in both
    assert "with matches" not in run_queries("--never")
    assert "without a match" not in run_queries("--busiest")
    assert "and 1 more" in run_queries("--busiest", "--limit", "1")
    data = json.loads(run_queries("--json", "--limit", "1"))
    assert data["busiest"] == [{"feed": "Rock", "matches": 2}]
    assert (data["never"], data["matched_something"], data["upto"]) == (["Rokc"], 2, 2)
    assert CliRunner().invoke(app, ["queries", "--items", "0", "-w", str(engine.workspace.folder)]).exit_code == 2
