"""Broken and hostile RDF is rejected with a position, and does not affect other documents."""

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
from runnel.model.graph import GRAPH, MAX_TRIPLES
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


def read_error(text: str | bytes, name: str) -> BrokenDocumentError:
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


# --- broken documents -------------------------------------------------------------------------------------------


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
def test_invalid_rdf_is_rejected_with_a_position(text: str | bytes, name: str, place: str) -> None:
    assert read_error(text, name).place == place


def test_quoted_triples_are_rejected() -> None:
    assert (
        "a triple is used as a node, which is not supported"
        in read_error("<urn:a> <urn:b> <<( <urn:c> <urn:d> 1 )>> .", "a.ttl").message
    )
    assert "a triple is used as a node" in read_error("<< <urn:a> <urn:b> <urn:c> >> <urn:d> 1 .", "a.ttl").message


def test_rdf_xml_is_not_repaired() -> None:
    broken = (
        f'<rdf:RDF {RDF}><rdf:Description rdf:about="urn:a"><rdf:value>Q & A</rdf:value></rdf:Description></rdf:RDF>'
    )
    assert "not well-formed" in read_error(broken, "a.rdf").message
    assert read(broken.replace("&", "&amp;"), "a.rdf").items[0].first(GRAPH)


@pytest.mark.parametrize("name", ["tour.ttl", "tour.trig", "tour.nt", "tour.nq", "tour.rdf", "tour.jsonld"])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_damaged_rdf_is_read_or_rejected(name: str, data: st.DataObject) -> None:
    text = bytearray((DATA / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text[start:end] = data.draw(
            st.binary(max_size=4) | st.sampled_from([b"<", b'"', b"[", b"{", b"<<(", b"\\u0"])
        )
    try:
        feed = read(bytes(text), name)
        places = [problem.place or "" for problem in feed.problems]
        assert len(feed.items) + len(places) == 1
    except BrokenDocumentError as error:
        places = [error.place or ""]
    assert all(place.startswith(name) for place in places)


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
def test_rdf_parser_never_gets_a_doctype(text: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RdfReader, "read", lambda *_, **__: pytest.fail("the parser saw it"))
    assert "DOCTYPE" in read_error(text, "a.rdf").message


def test_feed_with_a_harmless_doctype_has_graphs() -> None:
    text = (
        (DATA / "rss_1.0.rdf").read_text("utf-8").replace("<rdf:RDF", '<!DOCTYPE rdf:RDF SYSTEM "a.dtd">\n<rdf:RDF')
    )
    (item,) = read(text, "a.rdf").items
    assert item.first(GRAPH)


def test_deeply_nested_triples_end_only_their_sandbox(reader: RdfReader) -> None:
    deep = b"<urn:a> <urn:b> " + 100_000 * b"<<( <urn:a> <urn:b> " + b"1" + 100_000 * b" )>>" + b" ."
    assert triples(reader) == 1
    with pytest.raises(UnreadableRdfError, match="was ended by signal"):
        triples(reader, deep)
    assert triples(reader) == 1
    assert "the parser was stopped" in read_error(deep, "a.ttl").message


@pytest.mark.parametrize("text", [100_000 * b"[<urn:p> ", b"<urn:a> <urn:b> " + 100_000 * b"(", 100_000 * b"{ "])
def test_other_deep_nesting_is_rejected(reader: RdfReader, text: bytes) -> None:
    with pytest.raises(UnreadableRdfError):
        triples(reader, text)
    assert triples(reader) == 1


def slow_contexts(count: int) -> bytes:
    """Return JSON-LD whose contexts take quadratic time."""
    terms = ",".join(f'"t{n}":{{"@id":"urn:t{n}","@context":{{"u{n}":"urn:u{n}"}}}}' for n in range(count))
    return f'{{"@context":{{{terms}}},{",".join(f"{chr(34)}t{n}{chr(34)}:{{}}" for n in range(count))}}}'.encode()


def test_slow_document_is_rejected_after_the_time_limit() -> None:
    reader = RdfReader(seconds=0.5)
    try:
        with pytest.raises(UnreadableRdfError, match=r"took more than 0\.5 seconds of CPU time"):
            triples(reader, slow_contexts(20_000), RdfForm.JSON_LD)
    finally:
        reader.close()
    patient = RdfReader(seconds=20)
    assert triples(patient, slow_contexts(10), RdfForm.JSON_LD) == 10
    patient.close()


def test_memory_of_the_rdf_sandbox_is_limited() -> None:
    reader = RdfReader(seconds=20, megabytes=200)
    try:
        assert triples(reader) == 1
        with pytest.raises(UnreadableRdfError, match="it took more than 200 MB of memory"):
            triples(reader, b"<urn:a> <urn:b> '" + b"x" * (150 << 20) + b"' .")
        assert triples(reader) == 1
    finally:
        reader.close()


def test_rdf_sandbox_cannot_open_files(reader: RdfReader) -> None:
    triples(reader)
    (pid,) = reader.sandboxes.pids()
    limits = Path(f"/proc/{pid}/limits").read_text()
    # The three standard streams and the socket.
    assert [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files")] == [["4", "4"]]


def test_killed_rdf_sandbox_is_replaced(reader: RdfReader) -> None:
    triples(reader)
    (pid,) = reader.sandboxes.pids()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert triples(reader) == 1


def test_concurrent_threads_get_their_own_results(reader: RdfReader) -> None:
    texts = [" ".join(f"<urn:a> <urn:b> {number} ." for number in range(count)).encode() for count in range(1, 30)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda text: triples(reader, text), texts)) == list(range(1, 30))


def test_small_rdf_document_is_also_read_in_a_sandbox() -> None:
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
def test_remote_contexts_are_rejected_and_never_fetched(text: str, line: int) -> None:
    with FeedServer().running() as server:
        address = server.url("/context.jsonld")
        error = read_error(text.replace("CONTEXT", address), "a.jsonld")
        assert server.seen == []
    assert f"refers to the remote context {address}," in error.message
    assert error.place == f"a.jsonld:{line}"


@pytest.mark.parametrize("context", ['"relative.jsonld"', '""', '["a"]'])
def test_relative_contexts_are_rejected_as_remote(context: str) -> None:
    assert "refers to the remote context" in read_error(f'{{"@context": {context}, "name": "x"}}', "a.jsonld").message


def test_rdf_parser_fetches_nothing(reader: RdfReader) -> None:
    with FeedServer().running() as server:
        with pytest.raises(UnreadableRdfError):
            triples(reader, f'{{"@context": "{server.url("/c")}", "a": 1}}'.encode(), RdfForm.JSON_LD)
        assert server.seen == []


def test_nesting_of_json_ld_is_limited() -> None:
    assert "nested more than" in read_error('{"urn:a":' * 200 + "1" + "}" * 200, "a.jsonld").message
    assert "nested more than" in read_error("[" * 100_000 + "]" * 100_000, "a.jsonld").message


# --- bounds --------------------------------------------------------------------------------------------------------


def test_too_many_triples_are_rejected() -> None:
    lines = "".join(f"<urn:a> <urn:b> '{number}' .\n" for number in range(MAX_TRIPLES + 1))
    assert f"more than {MAX_TRIPLES} triples" in read_error(lines, "a.ttl").message
    assert len(read(lines[: lines.rstrip().rindex("\n") + 1], "a.ttl").items) == 1


@pytest.mark.parametrize("size", [MAX_TEXT, 3 * MAX_TEXT])
def test_too_long_graph_is_rejected(size: int) -> None:
    assert "longer than" in read_error(f"<urn:a> <urn:b> '{size * 'x'}' .", "a.ttl").message


def feed_of(items: int, shared: int) -> str:
    """Return an RSS 1.0 feed whose items all refer to the same nodes."""
    entries = "".join(
        f'<item rdf:about="urn:i:{n}"><title>{n}</title><x:to rdf:resource="urn:shared"/></item>'
        for n in range(items)
    )
    things = "".join(f"<x:thing>{number}</x:thing>" for number in range(shared))
    return (
        f'<rdf:RDF {RDF} xmlns="http://purl.org/rss/1.0/" xmlns:x="urn:x:">{entries}'
        f'<rdf:Description rdf:about="urn:shared">{things}</rdf:Description></rdf:RDF>'
    )


def test_entry_with_a_too_large_graph_is_accepted_without_it() -> None:
    feed = read(feed_of(2, MAX_TRIPLES), "a.rdf")
    assert [item.attributes for item in feed.items] == [{"title": ("1",)}, {"title": ("0",)}]
    assert ["accepted without it" in problem.message for problem in feed.problems] == [True, True]


def test_total_of_the_graphs_of_a_feed_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rss_graphs, "MAX_DOCUMENT_TRIPLES", 2_000)
    feed = read(feed_of(50, 100), "a.rdf")
    assert (len(feed.items), feed.problems) == (50, [])
    assert "2000 triples in total" in (feed.note or "")
    assert not any(GRAPH in item.attributes for item in feed.items)
    assert all(GRAPH in item.attributes for item in read(feed_of(10, 100), "a.rdf").items)
