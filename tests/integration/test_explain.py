"""`explain` in text, JSON and pictures. It reveals nothing about the queries of other owners."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runnel.algebra.nodes.expressions import Expression
from runnel.catalog.declared import feeds
from runnel.catalog.learned import query_costs
from runnel.catalog.store.connection import now
from runnel.cli.main import app
from runnel.engine import Engine, connect
from runnel.engine.ask.status import read_status
from runnel.errors import NotFoundError
from runnel.model.learned.query_costs import Cost, Costs
from runnel.optimizer.optimize import PASSES
from runnel.scaleout.planning import explain_partition
from runnel.scaleout.planning.explain_partition import ExplainedPartition
from runnel.scaleout.planning.partition_figures import PartitionFigures

SCRIPT = """
register feed Wire; register feed Other;
create feed Rock from Wire where title contains 'rock';
create feed Live from Wire | Other where title contains 'rock' and title contains 'live';
create feed Idle from Wire where title contains 'jazz';
subscribe to Rock output log; subscribe to Live output log;
"""


def by_trees(engine: Engine) -> Engine:
    """The same workspace with the matcher `tree`."""
    return connect(engine.workspace.folder, matcher="tree")


def test_explain_shows_the_streams_of_a_feed(engine: Engine) -> None:
    engine.execute(SCRIPT)
    explained = engine.execute("explain feed Live;")[0]
    (branch,) = json.loads(json.dumps(explained.to_json()))["branches"]
    (matched,) = branch["matched"]
    assert (matched["matcher"], matched["sources"]) == ("streams", ["Wire", "Other"])
    assert matched["anchor"] in ("title contains 'rock'", "title contains 'live'")
    (stream,) = matched["streams"]
    assert [matched["anchor"], *stream["checks"]] in (
        ["title contains 'rock'", "title contains 'live'"],
        ["title contains 'live'", "title contains 'rock'"],
    )
    assert {name: entry["queries"] for entry in matched["expected"] for name in entry["sources"]} == {
        "Wire": 2,
        "Other": 1,
    }
    assert explained.to_json()["measured"] is None, "nothing was sampled yet"
    assert "tree" not in "\n".join(explained.lines)
    with pytest.raises(NotFoundError, match="Live has no filter tree") as refused:
        engine.pictures("Live")
    assert refused.value.hint is not None
    assert 'matcher = "tree"' in refused.value.hint


def test_steps_show_the_plan_after_each_pass_and_mark_passes_without_effect(engine: Engine) -> None:
    engine.execute(SCRIPT)
    explained = engine.explain("Live", steps=True)
    steps = explained.to_json()["steps"]
    assert [step["pass"] for step in steps] == [function.__name__ for function in PASSES]
    assert steps[0]["plan"] == ["Live: (Wire | Other)[title contains 'rock' and title contains 'live']"]
    assert steps[1]["plan"] == ["Live on Wire, Other: title contains 'rock' and title contains 'live'"]
    assert all(step["plan"] == [] for step in steps[2:])
    at = explained.lines.index("after push_negations:")
    assert explained.lines[at + 1] == "  unchanged"
    assert engine.explain("Live").to_json()["steps"] == []
    assert engine.explain("Wire", steps=True).to_json()["steps"][0]["plan"] == ["Wire: Wire"]
    root = str(engine.workspace.folder)
    result = CliRunner().invoke(app, ["explain", "Live", "--steps", "-w", root])
    assert "after push_filters:" in result.stdout
    engine.owners.add("ann")
    owned = engine.acting_as("ann").explain("Rock", steps=True)
    assert "Live" not in json.dumps(owned.to_json())


def test_measured_costs_are_shown_only_to_the_admin(engine: Engine) -> None:
    engine.execute(SCRIPT)
    with engine.workspace.catalog.write() as connection:
        feed = feeds.feed_by_name(connection, "Rock")
        assert feed is not None
        costs = Costs(40.0, {feed.id: Cost(60e6, "Walk", "title contains 'rock'")})
        query_costs.learn(connection, costs, now(connection))
    explained = engine.explain("Rock")
    assert explained.to_json()["measured"] == {
        "milliseconds": 1000.0,
        "sampled": 40.0,
        "part": "title contains 'rock'",
    }
    assert any(line.startswith("measured: 1,000.000 ms per 1,000 items (40 sampled)") for line in explained.lines)
    engine.owners.add("ann")
    assert engine.acting_as("ann").explain("Rock").to_json()["measured"] is None


def test_tree_matcher_shows_a_tree_per_source(engine: Engine) -> None:
    with by_trees(engine) as trees:
        trees.execute(SCRIPT)
        explained = trees.execute("explain feed Live;")[0]
    (branch,) = explained.to_json()["branches"]
    wire, other = branch["matched"]
    assert (wire["sources"], wire["predicates"]) == (["Wire"], 2)
    assert [entry["condition"] for entry in wire["tree"]["filters"]] == [
        "title contains 'rock'",
        "title contains 'live'",
    ]
    assert wire["tree"]["unfactored_cost"] == 2
    assert wire["tree"]["cost"] < 2
    assert wire["matcher"] == "tree"
    assert (other["sources"], other["predicates"]) == (["Other"], 1)
    json.dumps(explained.to_json())


def test_feed_without_subscribers_is_explained_with_its_own_tree(engine: Engine) -> None:
    with by_trees(engine) as trees:
        trees.execute(SCRIPT)
        (branch,) = trees.explain("Idle").to_json()["branches"]
        assert branch["matched"][0]["predicates"] == 1
        assert list(trees.pictures("Idle")) == ["Wire"]


@pytest.mark.parametrize("matcher", ["streams", "tree"])
def test_explain_does_not_reveal_queries_of_other_owners(matcher: str, engine: Engine) -> None:
    with connect(engine.workspace.folder, matcher=matcher) as chosen:
        _check_what_an_owner_sees(chosen, matcher)


def _check_what_an_owner_sees(engine: Engine, matcher: str) -> None:
    engine.execute("register feed Wire;")
    engine.owners.add("ann")
    engine.owners.add("bob")
    ann, bob = engine.acting_as("ann"), engine.acting_as("bob")
    for actor, word in ((ann, "alpha"), (bob, "beta")):
        actor.execute(f"create feed Mine from Wire where title contains '{word}'; subscribe to Mine output log;")
    engine.execute("create feed All from Wire where title contains 'gamma'; subscribe to All output log;")
    messages = "\n".join(ann.explain("Mine").lines) + json.dumps(ann.explain("Mine").to_json())
    assert "alpha" in messages
    for word in ("beta", "gamma"):
        assert word not in messages
    assert "1 predicate" in messages
    if matcher == "tree":
        drawn = "".join(ann.pictures("Mine").values())
        assert "alpha" in drawn
        assert all(word not in drawn for word in ("beta", "gamma"))
        assert "beta" in "".join(engine.pictures("All").values()), "the admin sees the whole tree"
    with pytest.raises(NotFoundError):
        ann.pictures("Nope")


def test_query_without_sources_has_no_picture(engine: Engine) -> None:
    engine.execute("register feed Wire; create feed Never from Wire where title contains 'a' and false;")
    with pytest.raises(NotFoundError, match="Never has no filter tree"):
        engine.pictures("Never")


def test_pictures_are_written_to_the_given_path(engine: Engine, tmp_path: Path) -> None:
    with by_trees(engine) as trees:
        trees.execute(SCRIPT)
    root, place = str(engine.workspace.folder), tmp_path / "live.svg"
    result = CliRunner().invoke(app, ["explain", "Live", "--picture", str(place), "--json", "-w", root])
    assert result.exit_code == 0, result.output
    second = tmp_path / "live-2.svg"
    assert json.loads(result.stdout)["pictures"] == {str(place): "Wire", str(second): "Other"}
    for path in (place, second):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "title contains 'rock'" in place.read_text("utf-8")
    messages = CliRunner().invoke(app, ["explain", "Rock", "--picture", str(place), "-w", root])
    assert "filter tree: " in messages.stdout
    refused = CliRunner().invoke(app, ["explain", "Rock", "--picture", str(tmp_path), "-w", root])
    assert refused.exit_code == 3
    assert "cannot be written" in refused.stderr


def test_opening_an_engine_does_not_import_numba() -> None:
    words = [sys.executable, "-X", "importtime", "-c", "import runnel.engine"]
    stderr = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    assert "runnel.engine" in stderr
    for heavy in ("numba", "matplotlib", "pyspark"):
        assert heavy not in stderr


def _divided(folder: Path) -> Engine:
    opened = connect(folder, partitions=2)
    opened.execute(SCRIPT)
    return opened


def test_explain_shows_the_partition_of_a_query(tmp_path: Path) -> None:
    with _divided(tmp_path / "divided") as engine:
        explained = engine.explain("Live")
        partition = explained.to_json()["partition"]
        assert partition["partitions"] == 2
        assert partition["partition"]["number"] in (1, 2)
        assert 1 <= partition["group_here"] <= partition["group"]
        assert {entry["strategy"] for entry in partition["weighed"]} <= {"grouped", "spread"}
        assert any("title contains" in (entry["condition"] or "") for entry in partition["router"]), partition[
            "router"
        ]
        text = "\n".join(explained.lines)
        assert f"in partition {partition['partition']['number']} of 2" in text
        assert "the router checks first: title contains" in text
        assert "measured: nothing yet" in text
        json.dumps(explained.to_json())
        (page,) = (
            CliRunner()
            .invoke(app, ["explain", "Rock", "--json", "-w", str(engine.workspace.folder)])
            .output.splitlines()
        )
        assert json.loads(page)["partition"]["partitions"] == 2


def test_query_in_the_delta_has_no_partition(tmp_path: Path) -> None:
    with _divided(tmp_path / "divided") as engine:
        engine.execute("create feed Late from Wire where title contains 'late'; subscribe to Late output log;")
        explained = engine.explain("Late")
        assert explained.to_json()["partition"]["partition"] is None
        assert any("in none of the 2 partitions" in line for line in explained.lines)
        assert engine.explain("Idle").to_json()["partition"] is None, "nobody wants it, so it is in no plan"


def test_partitions_are_shown_only_to_the_admin(tmp_path: Path) -> None:
    with _divided(tmp_path / "divided") as engine:
        engine.owners.add("ann")
        ann = engine.acting_as("ann")
        ann.execute("create feed Mine from Wire where title contains 'rock'; subscribe to Mine output log;")
        explained = ann.explain("Mine")
        assert explained.to_json()["partition"] is None
        assert not any("partition" in line for line in explained.lines)


def test_explain_marks_conditions_that_it_does_not_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _divided(tmp_path / "divided") as engine:
        (before,) = engine.explain("Rock").to_json()["partition"]["router"]
        assert (before["condition"], before["looked_at"]) == ("title contains 'rock'", True)
        # One literal times the atoms of the router, and the reading of these, is more than that.
        monkeypatch.setattr(explain_partition, "_MAX_COMPARISONS", explain_partition._READ_COST)
        explained = engine.explain("Rock")
        (router,) = explained.to_json()["partition"]["router"]
        assert (router["condition"], router["looked_at"]) == (None, False)
        assert any("too many to determine which" in line for line in explained.lines)


def test_explain_does_not_compare_many_words_with_many_atoms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(tmp_path / "divided", partitions=2) as engine:
        words = " or ".join(f"title contains 'word{number}'" for number in range(40))
        engine.execute(
            "register feed Wire;"
            f"create feed Wide from Wire where {words}; subscribe to Wide output log;"
            "create feed Other from Wire where title contains 'other'; subscribe to Other output log;"
        )
        compared: list[Expression] = []
        is_implied = explain_partition._is_implied

        def noted(wide: Expression, narrow: Expression) -> bool:
            compared.append(wide)
            return is_implied(wide, narrow)

        monkeypatch.setattr(explain_partition, "_is_implied", noted)
        assert engine.explain("Wide").to_json()["partition"]["router"][0]["looked_at"]
        assert 40 <= len(compared) <= 40 * 41
        compared.clear()
        monkeypatch.setattr(explain_partition, "_MAX_COMPARISONS", 40 * 40)
        assert not engine.explain("Wide").to_json()["partition"]["router"][0]["looked_at"]
        assert not compared


def test_partition_that_receives_all_items_lists_their_sources(tmp_path: Path) -> None:
    with connect(tmp_path / "divided", partitions=2) as engine:
        engine.execute(
            "register feed Wire; register feed News;"
            "create feed All from Wire | News; subscribe to All output log;"
            "create feed Other from Wire where title contains 'other'; subscribe to Other output log;"
        )
        (router,) = engine.explain("All").to_json()["partition"]["router"]
        assert router["condition"] == "nothing: all items of Wire and News go there"


def test_singular_and_plural_forms_are_correct(tmp_path: Path) -> None:
    with _divided(tmp_path / "divided") as engine:
        figures = read_status(engine.workspace).distribution
    assert isinstance(figures, PartitionFigures)
    value = replace(
        figures.partitions[0], expected_microseconds=12_483.123, items=2_000, matches=1, microseconds=10**8
    )
    lines = ExplainedPartition(figures, (), value, group=20, group_here=1).lines()
    text = " ".join(line.strip() for line in lines)
    assert "1 of 20 queries of its group is there" in text
    assert "12,483.12 µs per item" in text
    assert "2,000 items, 1 match, 50,000.0 µs per item of these" in text
    other = " ".join(ExplainedPartition(figures, (), value, group=20, group_here=2).lines())
    assert "2 of 20 queries of its group are there" in other
