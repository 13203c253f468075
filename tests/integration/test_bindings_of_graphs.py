"""Bindings of graph variables in matches, `why` and `explain`: alone, with filters, and as operator inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.in_process import InProcess

from runnel.catalog.declared import feeds
from runnel.engine import Engine, connect
from runnel.engine.trial.collect_matches import collect_matches
from runnel.engine.trial.trial_matcher import open_matcher
from runnel.errors import InvalidConditionError
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.model.bindings import Bindings
from runnel.plan.logical_plan import PlanQuery
from runnel.sinks.show_bindings import bindings_json
from runnel.streaming.worker import operator_work
from runnel.testing import MemorySink

MODULE = "tests.integration.city_operators"
INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
SCRIPT = f"""
register feed Pages;
register operator boatCount(kind text, ?count int) from '{MODULE}:boats' cost 2 ms;
create feed Late from Pages where graph {{ ?p <urn:year> ?y . filter(?y > 2003) }} and title exists;
create feed Later from Late where title contains 'rock';
create feed Either from Pages where graph {{ ?p <urn:by> ?who }} or graph {{ ?p <urn:year> 2003 }} or title = 'none';
create feed Beside from Pages where graph {{ ?p <urn:year> ?y }} and ?y < 2004;
create feed Tied from Pages where graph {{ ?p <urn:year> ?y }} and graph {{ ?p <urn:by> ?who }};
create feed Boats from Pages where graph {{ ?p <urn:kind> ?kind }} and boatCount(?kind, ?n) and ?n > 2;
create feed NoBoats from Pages where title exists and not (graph {{ ?p <urn:kind> ?kind }} and boatCount(?kind, ?n));
"""
NAMES = ("Late", "Later", "Either", "Beside", "Tied", "Boats", "NoBoats")


def triples(*text: str) -> str:
    return "".join(f"{value} .\n" for value in text)


ITEMS: list[dict[str, Any]] = [
    {
        "id": "1",
        "title": "rock",
        "graph": triples(
            f'<urn:a> <urn:year> "2010"^^<{INTEGER}>',
            f'<urn:b> <urn:year> "2003"^^<{INTEGER}>',
            "<urn:b> <urn:by> <urn:me>",
        ),
    },
    {
        "id": "2",
        "title": "boats",
        "graph": triples(
            '<urn:a> <urn:kind> "tour"', '<urn:a> <urn:kind> "coast guard"', "<urn:a> <urn:kind> <urn:x>"
        ),
        "tour boats": [1, 5],
        "coast guard boats": 7,
    },
    {"id": "3", "title": "none"},
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    operator_work.operators.cache_clear()
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,)) as opened:
        OperatorEnvironment.of(opened.workspace.settings).keep(opened.workspace.storage)
        opened.execute(SCRIPT + "".join(f"subscribe to {name} output log;" for name in NAMES))
        yield opened
    operator_work.operators.cache_clear()


def bound(engine: Engine, name: str) -> dict[int, list[dict[str, Any]]]:
    with engine.workspace.catalog.read() as connection:
        by_name = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    bindings = engine.workspace.matches.bindings(by_name[name], [1, 2, 3])
    return {sequence: [dict(row) for row in binding.rows] for sequence, binding in bindings.items()}


def matched(engine: Engine, name: str) -> list[int]:
    with engine.workspace.catalog.read() as connection:
        by_name = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    numbers: list[int] = []
    for rows in engine.workspace.matches.read(0, 3):
        numbers += [int(rows.sequences[row]) for row in rows.of_queries([by_name[name]])[0].tolist()]
    return sorted(numbers)


def test_bindings_of_graphs_are_part_of_matches(engine: Engine) -> None:
    engine.publish("Pages", ITEMS)
    InProcess(engine).match()
    assert bound(engine, "Late") == {1: [{"p": "urn:a", "y": 2010.0}]}
    assert bound(engine, "Later") == {}
    assert bound(engine, "Either") == {1: [{"p": "urn:b"}, {"p": "urn:b", "who": "urn:me"}]}
    assert bound(engine, "Beside") == {1: [{"p": "urn:b", "y": 2003.0}]}
    assert bound(engine, "Tied") == {1: [{"p": "urn:b", "who": "urn:me", "y": 2003.0}]}
    assert bound(engine, "Boats") == {
        2: [{"kind": "coast guard", "n": 7.0, "p": "urn:a"}, {"kind": "tour", "n": 5.0, "p": "urn:a"}]
    }
    assert bound(engine, "NoBoats") == {}


def test_why_shows_triples_and_inputs_of_operators(engine: Engine) -> None:
    engine.publish("Pages", ITEMS)
    InProcess(engine).match()
    lines = engine.why("1", "Late").lines
    assert any("✓ ?p <urn:year> ?y  [<urn:a> <urn:year>" in line for line in lines)
    assert any("✓ filter(" in line for line in lines)
    assert any("where ?p = urn:a, ?y = 2010" in line for line in lines)
    missing = engine.why("3", "Late").lines
    assert any("✗ the item has the attribute graph" in line for line in missing)
    asked = engine.why("2", "Boats")
    assert asked.to_json()["holds"]
    assert any("boatCount(" in line and "✓" in line for line in asked.lines)
    assert not engine.why("2", "NoBoats").to_json()["holds"]
    assert engine.why("3", "NoBoats").to_json()["holds"]


def test_explain_shows_graphs_and_their_operators(engine: Engine) -> None:
    late = "\n".join(engine.explain("Late").lines)
    assert "<urn:year>" in late
    boats = engine.explain("Boats")
    assert any("boatCount(" in line for line in boats.lines)
    assert boats.to_json()["operators"]["disjuncts"]


def test_preview_calls_operators_with_values_of_graphs(engine: Engine) -> None:
    engine.publish("Pages", ITEMS)
    (answer,) = engine.execute("preview feed Boats over last 1 days")
    assert (answer.to_json()["matched"], answer.to_json()["looked_at"]) == (1, 3)
    assert answer.to_json()["operators"]["items"] == 1, "the pattern is before the operator"


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("graph { ?p <urn:year> ?y } and ?y * 2 > 10", "a graph pattern cannot evaluate"),
        ("boatCount(?kind, ?n)", "?kind is not bound here"),
        ("graph { ?p <urn:kind> ?kind } or boatCount(?kind, ?n)", "?kind is not bound here"),
    ],
)
def test_invalid_condition_is_refused_with_its_position(engine: Engine, condition: str, message: str) -> None:
    with pytest.raises(InvalidConditionError, match=message.replace("?", r"\?")) as refused:
        engine.execute(f"create feed Wrong from Pages where {condition}")
    assert refused.value.span is not None
    assert refused.value.hint


def _shown(bindings: Bindings) -> list[dict[str, Any]]:
    return [dict(row) for row in bindings.rows]


def test_trials_previews_and_from_last_have_the_bindings_of_the_match_log(engine: Engine) -> None:
    runner = InProcess(engine)
    engine.publish("Pages", ITEMS)
    runner.run()
    for past in (False, True):
        tried = engine.test() if past else engine.test(ITEMS, feed="Pages")
        results = {(item.item.id, name): _shown(own) for item in tried.items for name, own in item.bindings.items()}
        assert results == {(str(n), name): rows for name in NAMES for n, rows in bound(engine, name).items()}
        assert any("Boats:" in line for line in tried.lines)
        (row,) = [item for item in tried.to_json()["items"] if item["id"] == "2"]
        assert (
            row["bindings"]["Boats"]["bindings"]
            == bindings_json(Bindings(tuple(bound(engine, "Boats")[2]), 2))["bindings"]
        )
    for name in NAMES:
        previewed = engine.preview(name)
        assert {n: _shown(own) for n, own in previewed.bindings.items()} == bound(engine, name)
    lines = engine.preview("Late").lines
    assert any("where p: urn:a, y: 2010" in line for line in lines)
    runner.close()


def test_items_matched_elsewhere_get_bindings_afterwards(engine: Engine) -> None:
    """A preview on Spark returns only sequences; the bindings of the newest are computed in this process."""
    engine.publish("Pages", ITEMS)
    with engine.workspace.catalog.read() as connection:
        feed = next(value.id for value in feeds.live_feeds(connection) if value.name == "Boats")
        definitions = feeds.definitions(connection, [feed])
    with open_matcher(engine.workspace, [PlanQuery(feed)], definitions) as matcher:
        results = collect_matches(matcher, engine.workspace.items.get([1, 2]), limit=None).kept
    assert {n: _shown(own[feed]) for n, own in results.items()} == {
        2: [{"kind": "coast guard", "n": 7.0, "p": "urn:a"}, {"kind": "tour", "n": 5.0, "p": "urn:a"}]
    }


def test_a_subscription_that_starts_in_the_past_gets_bindings(tmp_path: Path) -> None:
    MemorySink.clear()
    operator_work.operators.cache_clear()
    with connect(tmp_path / "root", create=True, operator_modules=(MODULE,)) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        engine.execute(SCRIPT)
        engine.publish("Pages", ITEMS)
        runner = InProcess(engine)
        runner.run()
        engine.execute(
            "subscribe to Boats output memory 'boats' from last 2 days;"
            "subscribe to Tied output memory 'tied' from last 2 days;"
        )
        runner.run()
        delivered = {
            key: {
                item.item.id: _shown(item.bindings) for message in MemorySink.delivered(key) for item in message.items
            }
            for key in ("boats", "tied")
        }
        assert delivered == {
            "boats": {
                "2": [{"kind": "coast guard", "n": 7.0, "p": "urn:a"}, {"kind": "tour", "n": 5.0, "p": "urn:a"}]
            },
            "tied": {"1": [{"p": "urn:b", "who": "urn:me", "y": 2003.0}]},
        }
        runner.close()
    operator_work.operators.cache_clear()
    MemorySink.clear()
