"""RDF from web servers, drop folders and publishers: graphs arrive completely, and errors affect no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.integration.in_process import InProcess, read_files
from tests.unit.sources.web_feeds.feed_server import FeedServer, Page, PollWorld, rss

import runnel
from runnel.catalog.declared import feeds
from runnel.engine import Engine
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.restore import restore
from runnel.errors import BrokenDocumentError
from runnel.matching.costs.observe_stream import _Counts
from runnel.matching.operators.builtin.text.input_texts import text_of
from runnel.matching.operators.plugins.contract import OperatorCall
from runnel.model.graph import GRAPH, RdfGraph, read_ntriples
from runnel.model.item import Item
from runnel.testing import MemorySink

DATA = Path(__file__).parents[1] / "data"
NOTATIONS = {
    "tour.ttl": "text/turtle",
    "tour.nt": "application/n-triples",
    "tour.nq": "application/n-quads",
    "tour.trig": "application/trig",
    "tour.rdf": "application/rdf+xml",
    "tour.jsonld": "application/ld+json",
}
DEEP = b"<urn:a> <urn:b> " + 50_000 * b"<<( <urn:a> <urn:b> " + b"1" + 50_000 * b" )>>" + b" ."
CITY = "<https://tour.example/terms#city>"


@pytest.fixture
def server() -> Iterator[FeedServer]:
    with FeedServer().running() as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, server: FeedServer) -> Iterator[PollWorld]:
    made = PollWorld(tmp_path / "root", server)
    yield made
    made.close()


def items_of(engine: Engine) -> list[Item]:
    """Return all items in the log, oldest first."""
    root = engine.workspace
    with root.catalog.read() as connection:
        names = feeds.feed_names(connection)
    return [item for batch in root.items.read(0, root.items.last_sequence()) for item in batch.items(names)]


def graph_of(item: Item) -> RdfGraph:
    row = item.first(GRAPH)
    assert isinstance(row, RdfGraph)
    return row


# --- over HTTP -----------------------------------------------------------------------------------------------------


def test_every_notation_is_polled_by_its_media_type(world: PollWorld, server: FeedServer) -> None:
    for name, media in NOTATIONS.items():
        path = f"/{name.replace('.', '-')}"
        server.pages[path] = Page((DATA / name).read_bytes(), headers={"Content-Type": media})
        world.register(path, name=name.partition(".")[2].title())
    assert world.poll().accepted == len(NOTATIONS)
    items = world.accepted()
    assert {item.id for item in items} == {server.url(path) for path in server.pages}
    assert len({graph_of(item) for item in items}) == 1
    assert "text/turtle" in server.seen[0][1]["accept"]


def test_unchanged_document_is_skipped_and_changed_graph_is_a_new_version(
    world: PollWorld, server: FeedServer
) -> None:
    turtle = (DATA / "tour.ttl").read_bytes()
    server.pages["/t"] = Page(turtle, headers={"Content-Type": "text/turtle"})
    feed = world.register("/t")
    world.poll()
    server.pages["/t"] = Page(b"# a comment\n" + turtle, headers={"Content-Type": "text/turtle"})
    assert world.poll_after(600).accepted == 0
    server.pages["/t"] = Page(turtle.replace(b"800", b"801"), headers={"Content-Type": "text/turtle"})
    assert world.poll_after(600).accepted == 1
    first, second = world.accepted()
    assert (first.version, second.version, first.id) == (1, 2, second.id)
    assert graph_of(first) != graph_of(second)
    assert world.state(feed).problem is None


def test_invalid_document_does_not_affect_others(world: PollWorld, server: FeedServer) -> None:
    turtle = {"Content-Type": "text/turtle"}
    server.pages |= {
        "/deep": Page(DEEP, headers=turtle),
        "/broken": Page(b"<urn:a> <urn:b>\n <c d> .", headers=turtle),
        "/context": Page(
            json.dumps({"@context": server.url("/secret"), "a": 1}).encode(),
            headers={"Content-Type": "application/ld+json"},
        ),
        "/good": Page(b"<urn:a> <urn:b> 1 .", headers=turtle),
        "/rss": Page(rss("1")),
    }
    numbers = {path: world.register(path) for path in server.pages}
    poll = world.poll()
    assert (poll.accepted, poll.quarantined) == (2, 3)
    assert "/secret" not in server.paths()
    reasons = {entry.place: entry.reason for entry in world.quarantined()}
    assert "Invalid IRI" in reasons[f"{server.url('/broken')}:2:2"]
    assert "remote context" in reasons[f"{server.url('/context')}:1"]
    assert "the parser was stopped" in reasons[f"{server.url('/deep')}:1"]
    assert [path for path, feed in numbers.items() if world.state(feed).problem] == ["/deep", "/broken", "/context"]
    server.pages["/deep"] = Page(b"<urn:a> <urn:b> 2 .", headers=turtle)
    assert world.poll_after(600).accepted == 1


def test_rss_1_items_have_graphs_and_a_changed_graph_is_a_new_version(world: PollWorld, server: FeedServer) -> None:
    text = (DATA / "rss_1.0_people.rdf").read_bytes()
    server.pages["/p"] = Page(text)
    world.register("/p")
    assert world.poll().accepted == 2
    server.pages["/p"] = Page(text.replace(b"Not reached", b"Nobody cares"))
    assert world.poll_after(600).accepted == 0
    server.pages["/p"] = Page(text.replace(b"<foaf:name>Bob", b"<foaf:name>Rob"))
    assert world.poll_after(600).accepted == 1
    assert '"Rob"' in graph_of(world.accepted()[-1])


# --- files and publishing ------------------------------------------------------------------------------------------


def test_drop_folder_reads_all_extensions_and_quarantines_broken_files(engine: Engine, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    engine.execute(f"register feed '{drop}' as Tours;")
    for name in NOTATIONS:
        (drop / name).write_bytes((DATA / name).read_bytes())
    (drop / "onto.owl").write_bytes((DATA / "tour.rdf").read_bytes())
    (drop / "a-deep.ttl").write_bytes(DEEP)
    (drop / "b-broken.nt").write_text("<urn:a> <urn:b> .\n")
    files = read_files(engine)
    assert (files.accepted, files.quarantined) == (7, 2)
    assert sorted(item.id for item in items_of(engine)) == sorted([*NOTATIONS, "onto.owl"])
    assert read_files(engine).accepted == 0


def test_documents_and_lines_are_published_with_graphs(engine: Engine) -> None:
    engine.execute("register feed Wire;")
    accepted, refused = engine.publish_document("Wire", (DATA / "tour.ttl").read_bytes(), name="new/tour.ttl")
    assert (accepted.accepted, refused) == (1, [])
    piped, _ = engine.publish_document("Wire", (DATA / "tour.ttl").read_bytes(), name="-")
    assert piped.accepted == 1
    lines = [{"id": "l", "graph": f'<urn:a> {CITY} "Bern" .'}, {"id": "m", "graph": "Bern"}]
    accepted, refused = engine.publish_document(
        "Wire", "\n".join(map(json.dumps, lines)).encode(), name="lines.jsonl"
    )
    assert accepted.accepted == 1
    assert ["line 1 of the graph is not an N-Triples statement" in entry.message for entry in refused] == [True]
    assert [item.id for item in items_of(engine)] == ["tour.ttl", "https://tour.example/autumn", "l"]
    with pytest.raises(BrokenDocumentError, match="the parser was stopped"):
        engine.publish_document("Wire", DEEP, name="deep.ttl")
    quarantine = engine.execute("show quarantine;")[0].to_json()["quarantine"]
    assert {row["kind"] for row in quarantine} == {"item", "document"}


# --- going out -----------------------------------------------------------------------------------------------------


def published(engine: Engine, statements: str) -> InProcess:
    engine.execute(f"register feed Wire; create feed All from Wire; {statements}")
    engine.publish_document("Wire", (DATA / "tour.ttl").read_bytes(), name="tour.ttl")
    graph = '<urn:a> <urn:b> "<script>\\u0001]]>" .'
    engine.publish("Wire", [{"id": "odd", "title": "Odd", "graph": graph}])
    run = InProcess(engine)
    run.run()
    run.close()
    return run


def test_json_lines_contain_graphs_as_ntriples(engine: Engine) -> None:
    published(engine, "subscribe to All output jsonl 'all.jsonl';")
    lines = (engine.workspace.out / "all.jsonl").read_text("utf-8").splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert [record["id"] for record in records] == ["tour.ttl", "odd"]
    for record, item in zip(records, items_of(engine), strict=True):
        (text,) = record["attributes"]["graph"]
        assert read_ntriples(text) == text == graph_of(item)


def test_webhooks_contain_graphs_as_ntriples(tmp_path: Path, server: FeedServer) -> None:
    taken: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(await request.json())
        return web.Response(status=204)

    server.handlers["/hook"] = take
    with runnel.connect(tmp_path / "root", allowed_addresses=("127.0.0.1",)) as engine:
        published(engine, f"subscribe to All output webhook '{server.url('/hook')}';")
        sent = [item["attributes"]["graph"] for message in taken for item in message["data"]["items"]]
        assert sent == [[graph_of(item)] for item in items_of(engine)]


@pytest.mark.parametrize("kind", ["rss", "atom", "json"])
def test_feed_files_omit_graphs(engine: Engine, kind: str) -> None:
    published(engine, f"subscribe to All output {kind} 'all';")
    text = (engine.workspace.out / "all").read_text("utf-8")
    assert "Autumn tour" in text
    assert "terms#city" not in text
    assert "urn:b" not in text


def test_stylesheet_and_materialized_feed_accept_items_with_graphs(engine: Engine) -> None:
    sheets = engine.workspace.folder / "sheets"
    sheets.mkdir(exist_ok=True)
    (sheets / "same.xsl").write_text(
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        '<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy>'
        "</xsl:template></xsl:stylesheet>"
    )
    MemorySink.clear()
    run = published(engine, "register feed All apply 'same.xsl' as Shaped; subscribe to Shaped output memory 'in';")
    run.restart_delivery()
    run.run()
    run.close()
    items = [item for item in items_of(engine) if item.feed == "Shaped"]
    assert sorted(str(item.first("title")) for item in items) == ["Autumn tour", "Odd"]
    assert not any(GRAPH in item.attributes for item in items)


def test_conditions_on_text_ignore_graphs(engine: Engine) -> None:
    engine.execute(
        """register feed Wire;
        create feed ByTitle from Wire where title contains 'autumn';
        create feed InGraph from Wire where "graph" contains 'bern';
        create feed Alike from Wire where "graph" = 'bern';
        create feed Any from Wire where "graph" exists;
        subscribe to Any output log;
        subscribe to ByTitle output log; subscribe to InGraph output log; subscribe to Alike output log;"""
    )
    engine.publish_document("Wire", (DATA / "tour.ttl").read_bytes(), name="tour.ttl")
    run = InProcess(engine)
    run.run()
    run.close()
    assert [len(list(engine.matches(name))) for name in ("ByTitle", "InGraph", "Alike", "Any")] == [1, 0, 0, 1]


def test_distinct_compares_whole_graphs(engine: Engine) -> None:
    engine.execute(
        'register feed Wire; create feed Fresh from Wire distinct by "graph"; subscribe to Fresh output log;'
    )
    run = InProcess(engine)
    for name, city in (("1", "Bern"), ("2", "Bern"), ("3", "BERN")):
        engine.publish("Wire", [{"id": name, "graph": f'<urn:a> {CITY} "{city}" .'}])
    run.run()
    run.close()
    assert [match.item.id for match in engine.matches("Fresh")] == ["1", "3"]


def test_backup_contains_graphs(engine: Engine, tmp_path: Path) -> None:
    published(engine, "")
    before = items_of(engine)
    back_up(engine.workspace, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    with runnel.connect(tmp_path / "again") as other:
        assert items_of(other) == before
        assert all(isinstance(item.first(GRAPH), RdfGraph) for item in items_of(other))


def test_graph_conditions_match_graphs_of_all_sources(engine: Engine, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    engine.execute(
        f"""register feed Wire; register feed '{drop}' as Drop;
        create feed Stops from (Wire | Drop) where graph {{
            ?tour <https://tour.example/terms#stop> ?stop . ?stop {CITY} "Bern" .
            ?stop <https://tour.example/terms#seats> ?seats . filter(?seats > 500) }};
        subscribe to Stops output log;"""
    )
    (drop / "tour.trig").write_bytes((DATA / "tour.trig").read_bytes())
    (drop / "small.trig").write_bytes((DATA / "tour.trig").read_bytes().replace(b"800", b"300"))
    read_files(engine)
    engine.publish_document("Wire", (DATA / "tour.jsonld").read_bytes(), name="tour.jsonld")
    run = InProcess(engine)
    run.run()
    run.close()
    assert [match.item.id for match in engine.matches("Stops")] == ["tour.trig", "tour.jsonld"]


def test_operators_and_statistics_ignore_graphs_as_text() -> None:
    """Statistics count the terms of a graph, not the words in them."""
    attributes = {"title": ("Autumn",), GRAPH: (RdfGraph(f'<urn:a> {CITY} "Bern" .\n'),)}
    assert text_of(OperatorCall(attributes), ("title", GRAPH), 100) == "Autumn"
    assert text_of(OperatorCall({}, (attributes[GRAPH],)), (), 100) == ""
    counts = _Counts()
    counts.add(attributes)
    assert set(counts.sample().words) == {"autumn", "<urn:a>", CITY, '"Bern"'}


def test_a_compiled_plan_reads_graphs_of_mappings() -> None:
    plan = runnel.compile(f'create feed Stops from Wire where graph {{ ?stop {CITY} "Bern" }}')
    given = [{"graph": f'<urn:a> {CITY} "{city}" .'} for city in ("Bern", "Oslo")]
    assert plan.match([*given, {"title": f'<urn:a> {CITY} "Bern" .'}]) == [["Stops"], [], []]
