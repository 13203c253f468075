"""`explain` as a person meets it: the filter tree in text, JSON and pictures, and nothing of what others want."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runnel.cli.main import app
from runnel.engine import Engine, open_engine
from runnel.errors import NotFound

SCRIPT = """
register feed Wire; register feed Other;
create feed Rock from Wire where title contains 'rock';
create feed Live from Wire | Other where title contains 'rock' and title contains 'live';
create feed Idle from Wire where title contains 'jazz';
subscribe to Rock output log; subscribe to Live output log;
"""


def test_a_feed_is_shown_in_the_tree_of_each_of_its_sources(engine: Engine) -> None:
    engine.execute(SCRIPT)
    explained = engine.execute("explain feed Live;")[0]
    (branch,) = explained.data["branches"]
    wire, other = branch["trees"]
    assert (wire["sources"], wire["predicates"]) == (["Wire"], 2)
    assert [one["condition"] for one in wire["tree"]["filters"]] == ["title contains 'rock'", "title contains 'live'"]
    assert wire["tree"]["unfactored_cost"] == 2
    assert wire["tree"]["cost"] < 2
    assert wire["matchers"]["used"] == "streams"
    assert wire["matchers"]["queries"] == 2
    assert (other["sources"], other["predicates"]) == (["Other"], 1)
    assert branch["anchor"] in ("title contains 'rock'", "title contains 'live'")
    json.dumps(explained.data)


def test_a_feed_that_nobody_wants_has_a_tree_of_its_own(engine: Engine) -> None:
    engine.execute(SCRIPT)
    (branch,) = engine.explain("Idle").data["branches"]
    assert branch["trees"][0]["predicates"] == 1
    assert list(engine.pictures("Idle")) == ["Wire"]


def test_an_owner_sees_nothing_of_what_others_want(engine: Engine) -> None:
    engine.execute("register feed Wire;")
    engine.owners.add("ann")
    engine.owners.add("bob")
    ann, bob = engine.acting_as("ann"), engine.acting_as("bob")
    for actor, word in ((ann, "alpha"), (bob, "beta")):
        actor.execute(f"create feed Mine from Wire where title contains '{word}'; subscribe to Mine output log;")
    engine.execute("create feed All from Wire where title contains 'gamma'; subscribe to All output log;")
    told = "\n".join(ann.explain("Mine").lines) + json.dumps(ann.explain("Mine").data)
    drawn = "".join(ann.pictures("Mine").values())
    assert "alpha" in told
    assert "alpha" in drawn
    for word in ("beta", "gamma"):
        assert word not in told
        assert word not in drawn
    assert "1 predicate:" in told
    assert "beta" in "".join(engine.pictures("All").values()), "the operator sees the whole tree"
    with pytest.raises(NotFound):
        ann.pictures("Nope")


def test_what_reads_no_source_has_no_picture(engine: Engine) -> None:
    engine.execute("register feed Wire; create feed Never from Wire where title contains 'a' and false;")
    with pytest.raises(NotFound, match="no filter tree of Never"):
        engine.pictures("Never")


def test_pictures_are_written_where_they_are_wanted(engine: Engine, tmp_path: Path) -> None:
    engine.execute(SCRIPT)
    root, place = str(engine.root.folder), tmp_path / "live.svg"
    result = CliRunner().invoke(app, ["explain", "Live", "--picture", str(place), "--json", "-r", root])
    assert result.exit_code == 0, result.output
    second = tmp_path / "live-2.svg"
    assert json.loads(result.stdout)["pictures"] == {str(place): "Wire", str(second): "Other"}
    for path in (place, second):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "title contains 'rock'" in place.read_text("utf-8")
    told = CliRunner().invoke(app, ["explain", "Rock", "--picture", str(place), "-r", root])
    assert "drawn: " in told.stdout
    refused = CliRunner().invoke(app, ["explain", "Rock", "--picture", str(tmp_path), "-r", root])
    assert refused.exit_code == 3
    assert "cannot be written" in refused.stderr


def test_the_commands_start_without_the_compiler_of_kernels() -> None:
    words = [sys.executable, "-X", "importtime", "-c", "import runnel.cli.main"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    assert "runnel.cli.main" in told
    for heavy in ("numba", "matplotlib", "pyspark"):
        assert heavy not in told


def _divided(folder: Path) -> Engine:
    opened = open_engine(folder, partitions=2)
    opened.execute(SCRIPT)
    return opened


def test_a_query_of_a_divided_plan_is_shown_where_it_is(tmp_path: Path) -> None:
    with _divided(tmp_path / "divided") as engine:
        explained = engine.explain("Live")
        told = explained.data["partition"]
        assert told["partitions"] == 2
        assert told["partition"]["number"] in (0, 1)
        assert 1 <= told["group_here"] <= told["group"]
        assert {one["strategy"] for one in told["weighed"]} <= {"grouped", "spread"}
        assert any("title contains" in (one["condition"] or "") for one in told["router"]), told["router"]
        text = "\n".join(explained.lines)
        assert f"in partition {told['partition']['number'] + 1} of 2" in text
        assert "the router asks first: title contains" in text
        assert "measured: nothing yet" in text
        json.dumps(explained.data)
        (page,) = (
            CliRunner().invoke(app, ["explain", "Rock", "--json", "-r", str(engine.root.folder)]).output.splitlines()
        )
        assert json.loads(page)["partition"]["partitions"] == 2


def test_a_query_that_was_added_since_is_in_no_partition(tmp_path: Path) -> None:
    with _divided(tmp_path / "divided") as engine:
        engine.execute("create feed Late from Wire where title contains 'late'; subscribe to Late output log;")
        explained = engine.explain("Late")
        assert explained.data["partition"]["partition"] is None
        assert any("in none of the 2 partitions" in line for line in explained.lines)
        assert engine.explain("Idle").data["partition"] is None, "nobody wants it, so it is in no plan"


def test_how_queries_are_divided_is_for_the_operator(tmp_path: Path) -> None:
    with _divided(tmp_path / "divided") as engine:
        engine.owners.add("ann")
        ann = engine.acting_as("ann")
        ann.execute("create feed Mine from Wire where title contains 'rock'; subscribe to Mine output log;")
        explained = ann.explain("Mine")
        assert explained.data["partition"] is None
        assert not any("partition" in line for line in explained.lines)
