"""RDF from people who mean harm, or do not care: refused with its place, at no cost to anybody else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sources.web_feeds.feed_server import FeedServer

from runnel.errors import BrokenDocumentError
from runnel.model.graph import GRAPH, MOST_TRIPLES
from runnel.model.item import MAX_TEXT
from runnel.sandbox.rdf_reader import RdfForm, RdfReader, UnreadableRdfError
from runnel.sources.document_child import DocumentSource
from runnel.sources.document_pool import DocumentPool
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.decode import decode
from runnel.sources.rdf import rss_graphs
from runnel.sources.rdf.decode_rdf import form_of

DATA = Path(__file__).parents[3] / "data"
RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
SIMPLE = b"<urn:a> <urn:b> 1 ."


def read(text: str | bytes, name: str) -> AdaptedFeed:
    data = text.encode() if isinstance(text, str) else text
    return adapt(decode(data, name, form=form_of(None, name)), "F")


def refusal(text: str | bytes, name: str) -> BrokenDocumentError:
    with pytest.raises(BrokenDocumentError) as caught:
        read(text, name)
    assert caught.value.hint
    return caught.value


@pytest.fixture
def reader() -> Iterator[RdfReader]:
    made = RdfReader(seconds=20)
    yield made
    made.close()


def triples(reader: RdfReader, data: bytes = SIMPLE, form: RdfForm = RdfForm.TURTLE) -> int:
    return len(reader.read(data, form, "urn:x", triples=1000, characters=10_000))


# --- what is broken ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "place"),
    [
        ("<urn:a> <urn:b> 1 .\n\n<urn:a> <urn:b> <c d> .", "a.ttl", "a.ttl:3:17"),
        ("<urn:a> <urn:b> <urn:c> .\n<a> <urn:b> <urn:c> .", "a.nt", "a.nt:2:1"),
        ("<urn:a> <urn:b> <urn:c> <urn:d> <urn:e> .", "a.nq", "a.nq:1:33"),
        ("<urn:g> {\n<urn:a> <urn:b> }", "a.trig", "a.trig:2:17"),
        ('{"@id":\n "urn:a", }', "a.jsonld", "a.jsonld:2:11"),
        ('{"@id": "urn:a", "@id": "urn:b"}', "a.jsonld", "a.jsonld:1:1"),
        (f"<rdf:RDF {RDF}>\n<x></rdf:RDF>", "a.rdf", "a.rdf:2:14"),
        ("PREFIX e: <urn:e:>\ne:a e:b", "-", "-:2:8"),
        (b"<urn:a> <urn:b> '\xff' .", "a.ttl", "a.ttl:1:18"),
        ("", "a.ttl", "a.ttl:1"),
        ("# nothing\n", "a.ttl", "a.ttl:1"),
        ("[]", "a.jsonld", "a.jsonld:1"),
        (f"<rdf:RDF {RDF}/>", "a.rdf", "a.rdf:1"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str | bytes, name: str, place: str) -> None:
    assert refusal(text, name).place == place


def test_triples_about_triples_are_refused() -> None:
    assert (
        "a triple stands in the place of a node"
        in refusal("<urn:a> <urn:b> <<( <urn:c> <urn:d> 1 )>> .", "a.ttl").message
    )
    assert "a triple stands" in refusal("<< <urn:a> <urn:b> <urn:c> >> <urn:d> 1 .", "a.ttl").message


def test_rdf_xml_is_not_mended() -> None:
    broken = (
        f'<rdf:RDF {RDF}><rdf:Description rdf:about="urn:a"><rdf:value>Q & A</rdf:value></rdf:Description></rdf:RDF>'
    )
    assert "not well-formed" in refusal(broken, "a.rdf").message
    assert read(broken.replace("&", "&amp;"), "a.rdf").items[0].first(GRAPH)


@pytest.mark.parametrize("name", ["tour.ttl", "tour.trig", "tour.nt", "tour.nq", "tour.rdf", "tour.jsonld"])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_damaged_documents_are_read_or_refused(name: str, data: st.DataObject) -> None:
    text = bytearray((DATA / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text[start:end] = data.draw(
            st.binary(max_size=4) | st.sampled_from([b"<", b'"', b"[", b"{", b"<<(", b"\\u0"])
        )
    try:
        feed = read(bytes(text), name)
        told = [problem.place or "" for problem in feed.problems]
        assert len(feed.items) + len(told) == 1
    except BrokenDocumentError as refused:
        told = [refused.place or ""]
    assert all(place.startswith(name) for place in told)


# --- bombs ---------------------------------------------------------------------------------------------------------

BOMB = (
    '<!DOCTYPE rdf:RDF [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>\n'
    f'<rdf:RDF {RDF}><rdf:Description rdf:about="urn:a"><rdf:value>&c;</rdf:value></rdf:Description></rdf:RDF>'
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        BOMB.encode("utf-16"),
        f'<?xml version="1.0"?>\n<!-- a -->\n{BOMB}',
        BOMB.replace("rdf:RDF [", "rdf:RDF SYSTEM 'http://a.example/b.dtd' ["),
        f"<!DOCTYPE rdf:RDF SYSTEM 'http://a.example/b.dtd'>\n<rdf:RDF {RDF}/>",
        f"<!DOCTYPE rdf:RDF>\n<rdf:RDF {RDF}/>",
    ],
)
def test_no_doctype_reaches_the_parser_of_rdf(text: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RdfReader, "read", lambda *_, **__: pytest.fail("the parser saw it"))
    assert "refused" in refusal(text, "a.rdf").message


def test_a_feed_with_a_harmless_doctype_has_graphs_all_the_same() -> None:
    text = (
        (DATA / "rss_1.0.rdf").read_text("utf-8").replace("<rdf:RDF", '<!DOCTYPE rdf:RDF SYSTEM "a.dtd">\n<rdf:RDF')
    )
    (item,) = read(text, "a.rdf").items
    assert item.first(GRAPH)


def test_triples_nested_without_end_end_only_the_process_that_reads_them(reader: RdfReader) -> None:
    deep = b"<urn:a> <urn:b> " + 100_000 * b"<<( <urn:a> <urn:b> " + b"1" + 100_000 * b" )>>" + b" ."
    assert triples(reader) == 1
    with pytest.raises(UnreadableRdfError, match="was ended by signal"):
        triples(reader, deep)
    assert triples(reader) == 1
    assert "could not be read" in refusal(deep, "a.ttl").message


@pytest.mark.parametrize("text", [100_000 * b"[<urn:p> ", b"<urn:a> <urn:b> " + 100_000 * b"(", 100_000 * b"{ "])
def test_other_things_nested_without_end_are_refused(reader: RdfReader, text: bytes) -> None:
    with pytest.raises(UnreadableRdfError):
        triples(reader, text)
    assert triples(reader) == 1


def slow_contexts(count: int) -> bytes:
    """JSON-LD whose contexts take quadratic time."""
    terms = ",".join(f'"t{n}":{{"@id":"urn:t{n}","@context":{{"u{n}":"urn:u{n}"}}}}' for n in range(count))
    return f'{{"@context":{{{terms}}},{",".join(f"{chr(34)}t{n}{chr(34)}:{{}}" for n in range(count))}}}'.encode()


def test_a_document_without_end_is_given_up() -> None:
    reader = RdfReader(seconds=0.5)
    try:
        with pytest.raises(UnreadableRdfError, match=r"took more than 0\.5 seconds of CPU time"):
            triples(reader, slow_contexts(20_000), RdfForm.JSON_LD)
    finally:
        reader.close()
    patient = RdfReader(seconds=20)
    assert triples(patient, slow_contexts(10), RdfForm.JSON_LD) == 10
    patient.close()


def test_memory_is_bounded() -> None:
    reader = RdfReader(seconds=20, megabytes=200)
    try:
        assert triples(reader) == 1
        with pytest.raises(UnreadableRdfError, match="it took more than 200 MB of memory"):
            triples(reader, b"<urn:a> <urn:b> '" + b"x" * (150 << 20) + b"' .")
        assert triples(reader) == 1
    finally:
        reader.close()


def test_the_process_can_open_nothing(reader: RdfReader) -> None:
    triples(reader)
    (pid,) = reader.sandboxes.pids()
    limits = Path(f"/proc/{pid}/limits").read_text()
    # The three standard streams and the socket.
    assert [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files")] == [["4", "4"]]


def test_a_process_that_was_killed_is_replaced(reader: RdfReader) -> None:
    triples(reader)
    (pid,) = reader.sandboxes.pids()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert triples(reader) == 1


def test_many_threads_have_each_its_own_answer(reader: RdfReader) -> None:
    texts = [" ".join(f"<urn:a> <urn:b> {number} ." for number in range(count)).encode() for count in range(1, 30)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: triples(reader, text), texts)) == list(range(1, 30))


def test_a_small_document_is_read_in_a_process_where_its_notation_is_dangerous() -> None:
    deep = b"<urn:a> <urn:b> " + 1_200 * b"<<( <urn:a> <urn:b> " + b"1" + 1_200 * b" )>>" + b" ."
    with DocumentPool(workers=1) as pool:
        with pytest.raises(BrokenDocumentError):
            pool.read(deep, DocumentSource("a.ttl", "F", form=RdfForm.TURTLE))
        assert len(pool.read(SIMPLE, DocumentSource("a.ttl", "F", form=RdfForm.TURTLE)).items) == 1


# --- contexts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"@context": "CONTEXT", "name": "x"}', 1),
        ('{\n"@context": [{"a": "urn:a"},\n "CONTEXT"], "name": "x"}', 3),
        ('[{"@id": "urn:a",\n "urn:b": {"@context": "CONTEXT"}}]', 2),
        ('{"@context": {"a": {"@id": "urn:a",\n "@context": "CONTEXT"}}, "a": 1}', 2),
        ('{"@context": {"@import": "CONTEXT", "a": "urn:a"}, "a": 1}', 1),
        ('{"@context": ["CONTEXT"]}', 1),
    ],
)
def test_contexts_elsewhere_are_refused_and_never_fetched(text: str, line: int) -> None:
    with FeedServer().running() as server:
        address = server.url("/context.jsonld")
        refused = refusal(text.replace("CONTEXT", address), "a.jsonld")
        assert server.seen == []
    assert f"the context {address} is elsewhere" in refused.message
    assert refused.place == f"a.jsonld:{line}"


@pytest.mark.parametrize("context", ['"relative.jsonld"', '""', '["a"]'])
def test_relative_contexts_are_elsewhere_too(context: str) -> None:
    assert "is elsewhere" in refusal(f'{{"@context": {context}, "name": "x"}}', "a.jsonld").message


def test_the_parser_itself_fetches_nothing_either(reader: RdfReader) -> None:
    with FeedServer().running() as server:
        with pytest.raises(UnreadableRdfError):
            triples(reader, f'{{"@context": "{server.url("/c")}", "a": 1}}'.encode(), RdfForm.JSON_LD)
        assert server.seen == []


def test_nesting_of_json_is_bounded() -> None:
    assert "nested more than" in refusal('{"urn:a":' * 200 + "1" + "}" * 200, "a.jsonld").message
    assert "nested more than" in refusal("[" * 100_000 + "]" * 100_000, "a.jsonld").message


# --- bounds --------------------------------------------------------------------------------------------------------


def test_too_many_triples_are_refused() -> None:
    lines = "".join(f"<urn:a> <urn:b> '{number}' .\n" for number in range(MOST_TRIPLES + 1))
    assert f"more than {MOST_TRIPLES} triples" in refusal(lines, "a.ttl").message
    assert len(read(lines[: lines.rstrip().rindex("\n") + 1], "a.ttl").items) == 1


@pytest.mark.parametrize("size", [MAX_TEXT, 3 * MAX_TEXT])
def test_too_long_a_graph_is_refused(size: int) -> None:
    assert "longer than" in refusal(f"<urn:a> <urn:b> '{size * 'x'}' .", "a.ttl").message


def feed_of(items: int, shared: int) -> str:
    """A feed of RSS 1.0 whose items all lead to the same things."""
    entries = "".join(
        f'<item rdf:about="urn:i:{n}"><title>{n}</title><x:to rdf:resource="urn:shared"/></item>'
        for n in range(items)
    )
    things = "".join(f"<x:thing>{number}</x:thing>" for number in range(shared))
    return (
        f'<rdf:RDF {RDF} xmlns="http://purl.org/rss/1.0/" xmlns:x="urn:x:">{entries}'
        f'<rdf:Description rdf:about="urn:shared">{things}</rdf:Description></rdf:RDF>'
    )


def test_an_entry_that_leads_to_too_much_is_taken_without_its_graph() -> None:
    feed = read(feed_of(2, MOST_TRIPLES), "a.rdf")
    assert [item.attributes for item in feed.items] == [{"title": ("1",)}, {"title": ("0",)}]
    assert ["without a graph" in problem.message for problem in feed.problems] == [True, True]


def test_what_many_entries_lead_to_is_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rss_graphs, "MOST_DOCUMENT_TRIPLES", 2_000)
    feed = read(feed_of(50, 100), "a.rdf")
    assert (len(feed.items), feed.problems) == (50, [])
    assert "2000 triples together" in (feed.note or "")
    assert not any(GRAPH in item.attributes for item in feed.items)
    assert all(GRAPH in item.attributes for item in read(feed_of(10, 100), "a.rdf").items)
