"""Graphs end to end: declared with other conditions, published, matched, delivered and explained."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.in_process import InProcess, matched_ids
from tests.unit.algebra.generated_graphs import graphs, patterns
from typer.testing import CliRunner

import runnel
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import graph_bindings
from runnel.algebra.nodes.expressions import Not
from runnel.algebra.semantics.bindings import distinct
from runnel.algebra.semantics.evaluate import holds
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.errors import InputError, InvalidItemError, StatementError
from runnel.model.graph import RdfGraph
from runnel.testing import MemorySink

PREFIXES = "register prefix ex as 'https://ex.example/';"
DECLARED = """
register feed Pages;
create feed Recent from Pages where graph { ?page ex:project ?p . ?p ex:year ?y . filter(?y > 2003) };
create feed LongReads from Pages where title contains 'long' and not graph { ?page ex:draft true };
create feed ByAnn from Pages where graph { ?p ex:led_by _:who . _:who foaf:name "Ann" } or author = 'Ann';
create feed Chosen from (Recent as $r | LongReads) where $r[title contains 'rock'] and graph { ?p ex:year ?when };
"""
SUBSCRIBED = """
subscribe to Recent output memory 'recent';
subscribe to LongReads output log;
subscribe to ByAnn output jsonl 'ann.jsonl';
subscribe to Chosen output memory 'chosen';
"""

FILTER = """
@prefix ex: <https://ex.example/> .
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
ex:page1 ex:project ex:Filter .
ex:Filter ex:year 2004 ; ex:led_by [ foaf:name "Ann" , "Anne"@fr ] .
"""
OLD = """
<https://ex.example/page2> <https://ex.example/project> <https://ex.example/Old> .
<https://ex.example/Old> <https://ex.example/year> "1999"^^<http://www.w3.org/2001/XMLSchema#integer> .
"""
DRAFT = (
    OLD + '<https://ex.example/page2> <https://ex.example/draft> "true"^^<http://www.w3.org/2001/XMLSchema#boolean> .'
)
ITEMS: list[dict[str, Any]] = [
    {"id": "old", "title": "A long read", "graph": OLD},
    {"id": "draft", "title": "A long draft", "graph": DRAFT},
    {"id": "bare", "title": "Long, and no graph", "author": "Ann"},
    {"id": "short", "title": "Short"},
]


@pytest.fixture
def declared(engine: Engine) -> Engine:
    engine.execute(PREFIXES + DECLARED + SUBSCRIBED)
    return engine


def publish_all(engine: Engine) -> None:
    accepted, refused = engine.publish_document("Pages", FILTER.encode(), name="filter.ttl")
    assert (accepted.accepted, refused) == (1, [])
    lines = "".join(json.dumps(item) + "\n" for item in ITEMS)
    accepted, refused = engine.publish_document("Pages", lines.encode(), name="pages.jsonl")
    assert (accepted.accepted, refused) == (len(ITEMS), [])


def bound(key: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of bindings that were delivered to a memory sink, by item id."""
    return {
        item.item.id: [dict(row) for row in item.bindings.rows]
        for message in MemorySink.delivered(key)
        for item in message.items
    }


# --- end to end ----------------------------------------------------------------------------------------------------


def check_matches_and_deliveries(engine: Engine) -> None:
    """Assert the matches and deliveries of the items above."""
    assert matched_ids(engine, "Recent") == ["filter.ttl"]
    assert matched_ids(engine, "LongReads") == ["old", "bare"]
    assert matched_ids(engine, "ByAnn") == ["filter.ttl", "bare"]
    assert matched_ids(engine, "Chosen") == ["old"], "the page of the filter has no rock in its title"
    page, project = "https://ex.example/page1", "https://ex.example/Filter"
    assert bound("recent") == {"filter.ttl": [{"page": page, "p": project, "y": 2004.0}]}
    assert bound("chosen") == {"old": [{"p": "https://ex.example/Old", "when": 1999.0}]}
    lines = [json.loads(line) for line in (engine.workspace.out / "ann.jsonl").read_text("utf-8").splitlines()]
    assert [(line["id"], line.get("bindings", [])) for line in lines] == [
        ("filter.ttl", [{"p": project}]),
        ("bare", []),
    ]
    sent = RdfGraph(lines[0]["attributes"]["graph"][0])
    assert (
        "<https://ex.example/page1>",
        "<https://ex.example/project>",
        "<https://ex.example/Filter>",
    ) in sent.triples()


def test_graphs_of_files_and_lines_are_matched_and_their_bindings_delivered(declared: Engine) -> None:
    publish_all(declared)
    InProcess(declared).run()
    check_matches_and_deliveries(declared)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_graphs_are_matched_on_spark(declared: Engine) -> None:
    publish_all(declared)
    declared.run(once=True)
    check_matches_and_deliveries(declared)
    declared.execute("create or replace feed LongReads from Pages where graph { ?p ex:year 1999 };")
    declared.publish("Pages", [{"id": "later", "graph": DRAFT}])
    declared.run(once=True)
    assert matched_ids(declared, "LongReads") == ["old", "bare", "later"]
    assert matched_ids(declared, "Chosen") == ["old", "later"]


@settings(deadline=None, max_examples=6)
@given(st.lists(patterns(is_written=True), min_size=4, max_size=10), st.lists(graphs, min_size=2, max_size=6))
def test_generated_patterns_match_like_the_definition(written: list[Graph], given_graphs: list[RdfGraph]) -> None:
    """Half of the patterns are declared after the first plan was compiled, so they are in its delta."""
    half = len(written) // 2
    with tempfile.TemporaryDirectory() as folder, runnel.connect(Path(folder) / "root") as engine:
        engine.execute("register feed Pages;")
        items = [{"id": str(row), "graph": graph, "even": row % 2 == 0} for row, graph in enumerate(given_graphs)]

        def declare(numbers: range) -> None:
            for number in numbers:
                pattern = written[number].render()
                engine.execute(
                    f"create feed Has{number} from Pages where {pattern};"
                    f"create feed Lacks{number} from Pages where even = true and not {pattern};"
                    f"subscribe to Has{number} output log; subscribe to Lacks{number} output log;"
                )

        declare(range(half))
        runner = InProcess(engine)
        engine.publish("Pages", [{"id": "first"}])
        runner.match()
        declare(range(half, len(written)))
        engine.publish("Pages", items)
        runner.match()
        for number, pattern in enumerate(written):
            check_pattern(engine, number, pattern, items)


def check_pattern(engine: Engine, number: int, pattern: Graph, items: list[dict[str, Any]]) -> None:
    attributes: dict[str, dict[str, tuple[RdfGraph, ...]]] = {
        item["id"]: {"graph": (item["graph"],) if item["graph"] else ()} for item in items
    }
    has = [known for known, attribute in attributes.items() if holds(pattern, attribute)]
    lacks = [item["id"] for item in items if item["even"] and holds(Not(pattern), attributes[item["id"]])]
    assert matched_ids(engine, f"Has{number}") == has
    assert matched_ids(engine, f"Lacks{number}") == lacks
    for match in engine.matches(f"Has{number}"):
        (graph,) = attributes[match.item.id]["graph"]
        rows = [row for row in distinct(graph_bindings(pattern, graph.triples())) if row]
        assert sorted(map(repr, map(sorted_row, match.bindings.rows))) == sorted(map(repr, map(sorted_row, rows)))


def sorted_row(row: Any) -> list[tuple[str, Any]]:
    return sorted(row.items())


# --- declarations --------------------------------------------------------------------------------------------------


def test_replaced_pattern_keeps_its_subscription_and_dropped_pattern_ends(declared: Engine) -> None:
    runner = InProcess(declared)
    publish_all(declared)
    runner.run()
    declared.execute("create or replace feed Recent from Pages where graph { ?page ex:project ?q };")
    declared.publish("Pages", [{"id": "again", "graph": OLD}])
    runner.run()
    assert matched_ids(declared, "Recent") == ["filter.ttl", "again"]
    assert bound("recent")["again"] == [{"page": "https://ex.example/page2", "q": "https://ex.example/Old"}]
    with pytest.raises(StatementError, match="Recent"):
        declared.execute("drop feed Recent;")
    declared.execute("drop feed Recent cascade;")
    declared.publish("Pages", [{"id": "last", "graph": OLD, "title": "long"}])
    runner.run()
    assert "last" not in bound("recent")
    assert matched_ids(declared, "LongReads") == ["old", "bare", "last"]


def test_prefixes_are_resolved_when_a_feed_is_declared(declared: Engine) -> None:
    declared.execute("register prefix ex as 'https://other.example/'; drop prefix ex;")
    declared.publish("Pages", [{"id": "old", "graph": OLD, "title": "long"}])
    InProcess(declared).run()
    assert matched_ids(declared, "Chosen") == ["old"]
    (shown,) = declared.execute("show feeds;")
    assert not any(" ex:" in line for line in shown.lines)
    again = [line for line in shown.lines if line.startswith(("register feed", "create feed"))]
    with tempfile.TemporaryDirectory() as folder, runnel.connect(Path(folder) / "root") as other:
        other.execute("\n".join(again))
        assert other.execute("show feeds;")[0].lines == shown.lines


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("graph { }", "graph"),
        ("graph { ?p nosuch:year ?y }", "nosuch"),
        ("graph { ?p ex:year ?y . filter(?z > 3) }", "z"),
        ('graph { "text" ex:year ?y }', "literal|text|subject"),
        ("graph { ?p <year> ?y }", "<year>"),
        ("graph { ?p ex:year ?y . optional { ?p ex:name ?n } }", "(?i)optional"),
        ("graph { ?p ex:year ?y ", "."),
    ],
)
def test_invalid_pattern_is_refused_with_its_position(declared: Engine, block: str, said: str) -> None:
    with pytest.raises(StatementError, match=said) as caught:
        declared.execute(f"create feed Wrong from Pages where {block};")
    assert caught.value.span is not None
    assert not any("Wrong" in line for line in declared.execute("show feeds;")[0].lines)


# --- bad input -----------------------------------------------------------------------------------------------------


def test_invalid_graph_is_refused_with_its_line_and_other_items_are_accepted(declared: Engine) -> None:
    with pytest.raises(InvalidItemError, match="line 2 of the graph"):
        declared.publish("Pages", [{"id": "1", "graph": f"{OLD.splitlines()[1]}\n<no> <triple> ."}])
    lines = [{"id": "good", "graph": OLD}, {"id": "bad", "graph": "nothing of N-Triples"}, {"id": "fine"}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    accepted, refused = declared.publish_document("Pages", text.encode(), name="pages.jsonl")
    assert accepted.accepted == 2
    (problem,) = refused
    assert "line 1 of the graph" in problem.message
    with pytest.raises(InputError, match="broken"):
        declared.publish_document("Pages", b"@prefix ex: <https://ex.example/> .\nex:a ex:b", name="broken.ttl")


def test_graph_with_endless_search_is_quarantined_for_its_query_only(declared: Engine) -> None:
    """Edges without common variables match every triple, so there are many mappings; the filter is never true."""
    edges = " . ".join(f"?s{index} ex:p ?o{index}" for index in range(6))
    declared.execute(
        f"create feed Endless from Pages where graph {{ {edges} . filter(?s0 = ?o5) }};"
        "create feed Plain from Pages where graph { ?s ex:p ?o };"
        "subscribe to Endless output log; subscribe to Plain output log;"
    )
    graph = "".join(
        f"<https://ex.example/s{n}> <https://ex.example/p> <https://ex.example/o{n}> .\n" for n in range(60)
    )
    declared.publish("Pages", [{"id": "wide", "graph": graph}, {"id": "old", "title": "long", "graph": OLD}])
    InProcess(declared).run()
    assert matched_ids(declared, "Plain") == ["wide"]
    assert matched_ids(declared, "Endless") == []
    assert matched_ids(declared, "LongReads") == ["old"]
    (row,) = declared.execute("show quarantine;")[0].to_json()["quarantine"]
    assert "too many steps" in json.dumps(row)


def test_why_explains_decided_and_abandoned_patterns(declared: Engine) -> None:
    wide = " . ".join(f"?s{index} ex:p ?o{index}" for index in range(6))
    declared.execute(
        # As written, sixty triples to the power of five come before the edge that decides.
        f"create feed Cut from Pages where graph {{ {wide} . ?s5 ex:missing ?z }};"
        f"create feed Hit from Pages where graph {{ {wide} . ?s5 ex:once ?z . filter(?z = ex:here) }};"
        f"create feed Endless from Pages where graph {{ {wide} . filter(?s0 = ?o5) }};"
        "subscribe to Cut output log; subscribe to Hit output log; subscribe to Endless output log;"
    )
    base = "https://ex.example/"
    graph = "".join(f"<{base}s{n}> <{base}p> <{base}o{n}> .\n" for n in range(60))
    declared.publish("Pages", [{"id": "wide", "graph": f"{graph}<{base}s59> <{base}once> <{base}here> .\n"}])
    InProcess(declared).run()
    for name in ("Cut", "Hit", "Endless"):
        explanation = declared.why("wide", name)
        assert explanation.to_json()["holds"] is explanation.to_json()["recorded"] is (name == "Hit"), name
    assert any("✓" in line and "once" in line and "here" in line for line in declared.why("wide", "Hit").lines)
    assert any("✗ ?s5" in line and "missing" in line for line in declared.why("wide", "Cut").lines)
    assert any(
        "unknown: the graph has too many possible matches" in line for line in declared.why("wide", "Endless").lines
    )


# --- asking --------------------------------------------------------------------------------------------------------


def test_why_explain_test_and_preview_support_graphs(declared: Engine) -> None:
    publish_all(declared)
    InProcess(declared).run()
    explanation = declared.why("filter.ttl", "Recent")
    assert (explanation.to_json()["holds"], explanation.to_json()["recorded"]) == (True, True)
    assert any("?y = 2004" in line for line in explanation.lines)
    missing = declared.why("draft", "LongReads")
    assert missing.to_json()["holds"] is False
    assert any("draft" in line and "graph {" in line for line in missing.lines)
    assert any("graph {" in line for line in declared.explain("Recent").lines)
    trial = declared.test(ITEMS, feed="Pages")
    shown = {value.item.id: set(value.queries) for value in trial.items}
    assert shown == {"old": {"LongReads", "Chosen"}, "draft": set(), "bare": {"LongReads", "ByAnn"}, "short": set()}
    (preview,) = declared.execute(
        "preview create feed X from Pages where graph { ?p ex:year 1999 } over last 7 days;"
    )
    assert sorted(row["id"] for row in preview.to_json()["newest"]) == ["draft", "old"]
    assert sorted(item.id for item in declared.preview("ByAnn").newest) == ["bare", "filter.ttl"]


def test_commands_accept_rdf_files(tmp_path: Path) -> None:
    """Run the commands in a shell, as a user does."""
    root, page = str(tmp_path / "root"), tmp_path / "filter.ttl"
    page.write_text(FILTER, "utf-8")
    script = tmp_path / "feeds.runnel"
    script.write_text(PREFIXES + DECLARED, "utf-8")
    for command in (
        ["init", root],
        ["exec", "--file", str(script)],
        ["publish", "Pages", str(page)],
        ["test", str(page)],
    ):
        done = CliRunner().invoke(app, command if command[0] == "init" else [*command, "--workspace", root])
        assert done.exit_code == 0, done.output
    assert "Recent" in done.output
