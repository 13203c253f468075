"""Graphs of RDF documents in all notations, and of the entries of RDF feeds."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import BrokenDocumentError
from runnel.logs.items.fingerprint import fingerprint
from runnel.model.graph import GRAPH, RdfGraph, read_ntriples
from runnel.model.item import Item
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.decode import decode
from runnel.sources.documents.wire import DocumentKind
from runnel.sources.rdf.decode_rdf import form_of

DATA = Path(__file__).parents[3] / "data"
NOTATIONS = ("tour.ttl", "tour.trig", "tour.nt", "tour.nq", "tour.rdf", "tour.jsonld")
AUTUMN, BERN = "<https://tour.example/autumn>", "<https://tour.example/bern>"
TERMS = "https://tour.example/terms#"
TOUR = read_ntriples(
    f"""{AUTUMN} <http://purl.org/dc/terms/title> "Autumn tour"@en .
    {AUTUMN} <http://purl.org/dc/terms/issued> "2026-11-01"^^<http://www.w3.org/2001/XMLSchema#date> .
    {AUTUMN} <http://purl.org/dc/terms/modified> "2026-11-14T08:30:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> .
    {AUTUMN} <{TERMS}stop> {BERN} .
    {AUTUMN} <{TERMS}stop> _:b1 .
    _:b1 <{TERMS}city> "Genève" .
    _:b1 <{TERMS}seats> "1200"^^<http://www.w3.org/2001/XMLSchema#integer> .
    {BERN} <{TERMS}city> "Bern" .
    {BERN} <{TERMS}seats> "800"^^<http://www.w3.org/2001/XMLSchema#integer> .
    {BERN} <{TERMS}soldOut> "false"^^<http://www.w3.org/2001/XMLSchema#boolean> ."""
)


def read(data: bytes | str, name: str = "a.ttl", *, base: str | None = None, media: str | None = None) -> AdaptedFeed:
    given = data.encode() if isinstance(data, str) else data
    return adapt(decode(given, name, form=form_of(media, base or name), base=base), "F")


def only(feed: AdaptedFeed) -> Item:
    assert feed.problems == []
    (item,) = feed.items
    return item


def graph(data: bytes | str, name: str = "a.ttl", *, base: str | None = None) -> RdfGraph:
    value = only(read(data, name, base=base)).first(GRAPH)
    assert isinstance(value, RdfGraph)
    return value


# --- documents ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOTATIONS)
def test_every_notation_gives_the_same_graph(name: str) -> None:
    feed = read((DATA / name).read_bytes(), name)
    item = only(feed)
    assert feed.kind is DocumentKind.GRAPH
    assert item.attributes == {
        "title": ("Autumn tour",),
        "published": (datetime(2026, 11, 1, tzinfo=UTC),),
        "updated": (datetime(2026, 11, 14, 8, 30, tzinfo=UTC),),
        "link": ("https://tour.example/autumn",),
        "graph": (TOUR,),
    }
    assert item.id == name


@pytest.mark.parametrize("name", NOTATIONS)
def test_same_document_read_again_is_the_same_version(name: str) -> None:
    first, again = (only(read((DATA / name).read_bytes(), name)) for _ in range(2))
    assert fingerprint(first) == fingerprint(again)


def test_blank_nodes_are_named_by_their_order() -> None:
    assert graph("_:a <urn:p> _:b . _:b <urn:p> [] .") == graph("_:zz <urn:p> _:y . _:y <urn:p> _:q .")
    assert "_:b3" in graph("_:a <urn:p> _:b . _:b <urn:p> [] .")


def test_different_graph_is_a_new_version() -> None:
    entry, other = (only(read(f"<urn:a> <urn:p> {number} .")) for number in (1, 2))
    assert entry.id == other.id
    assert fingerprint(entry) != fingerprint(other)


@pytest.mark.parametrize(
    ("media", "name", "form"),
    [
        ("text/turtle; charset=utf-8", "https://a.example/x", RdfForm.TURTLE),
        ("Application/N-Triples", "https://a.example/x.ttl", RdfForm.N_TRIPLES),
        ("application/ld+json", "https://a.example/x", RdfForm.JSON_LD),
        ("application/trig", "https://a.example/x", RdfForm.TRIG),
        ("application/n-quads", "https://a.example/x", RdfForm.N_QUADS),
        ("text/plain", "https://a.example/x.nq?y=1.ttl", RdfForm.N_QUADS),
        ("application/json", "https://a.example/x.jsonld", RdfForm.JSON_LD),
        (None, "/drop/X.TTL", RdfForm.TURTLE),
        ("", "x.trig", RdfForm.TRIG),
        ("text/html", "https://a.example/x.ttl", None),
        ("application/rss+xml", "https://a.example/x.ttl", None),
        ("application/rdf+xml", "https://a.example/x.ttl", None),
        (None, "https://[/x.ttl", None),
        (None, "ttl", None),
    ],
)
def test_media_type_takes_precedence_over_suffix(media: str | None, name: str, form: RdfForm | None) -> None:
    assert form_of(media, name) is form


@pytest.mark.parametrize(
    "text",
    [
        "@prefix e: <urn:e:> .\ne:a e:b 1 .",
        "# tour\n\nPREFIX e: <urn:e:>\ne:a e:b 1 .",
        "@base <urn:e:> . <a> <b> 1 .",
        "<http://a.example/> <urn:p> 1 .",
    ],
)
def test_turtle_is_recognized_by_its_start(text: str) -> None:
    item = only(read(text, "-"))
    assert item.first(GRAPH)
    assert item.id != "-"


def test_text_that_starts_with_the_word_base_is_not_rdf() -> None:
    with pytest.raises(BrokenDocumentError, match="neither XML nor JSON"):
        read("Base camp: prefix of a tour", "a.txt")


def test_relative_iris_are_resolved_against_the_url_of_the_document() -> None:
    text = "<> <#p> <../b> ."
    assert graph(text, base="https://me:secret@a.example/x/y.ttl") == (
        "<https://a.example/x/y.ttl> <https://a.example/x/y.ttl#p> <https://a.example/b> .\n"
    )
    assert graph(text, "/srv/a b/c.ttl") == (
        "<file:///srv/a%20b/c.ttl> <file:///srv/a%20b/c.ttl#p> <file:///srv/b> .\n"
    )
    assert graph("@base <https://c.example/d/> . <e> <f> <g> .", base="https://a.example/") == (
        "<https://c.example/d/e> <https://c.example/d/f> <https://c.example/d/g> .\n"
    )


def test_id_of_a_web_document_is_its_url_without_secrets() -> None:
    item = only(read("<#a> <urn:p> 1 . <#b> <urn:p> 1 .", "x", base="https://a.example/x.ttl?token=secret"))
    assert item.id == "https://a.example/x.ttl?…"
    assert "link" not in item.attributes
    assert only(read("<#a> <urn:p> 1 . <#b> <urn:p> 1 .", base="https://a.example/x.ttl")).attributes["link"] == (
        "https://a.example/x.ttl",
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('<> <http://purl.org/dc/terms/title> "own" . <urn:x> <http://purl.org/dc/terms/title> "other" .', "own"),
        ('<urn:x> <http://xmlns.com/foaf/0.1/name> "Ann" ; <urn:p> [ <http://schema.org/name> "no" ] .', "Ann"),
        ('<urn:x> <http://www.w3.org/2000/01/rdf-schema#label> "l" ; <http://schema.org/name> "n" .', "n"),
        ('<urn:x> <http://schema.org/name> "x" . <urn:y> <http://schema.org/name> "y" .', None),
        ("<urn:x> <http://schema.org/name> <urn:y> .", None),
        ('<urn:x> <http://schema.org/name> "x" ; <urn:same> <urn:x> .', "x"),
        ('<urn:x> <http://purl.org/dc/elements/1.1/title> "a \\"b\\"\\n c" .', 'a "b" c'),
    ],
)
def test_title_is_that_of_the_main_subject(text: str, title: str | None) -> None:
    assert only(read(text)).first("title") == title


def test_invalid_date_in_rdf_is_kept_as_text() -> None:
    item = only(read('<urn:x> <http://purl.org/dc/terms/issued> "sometime" .'))
    assert item.attributes["published:text"] == ("sometime",)
    assert "published" not in item.attributes


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
IRIS = st.sampled_from(["urn:a", "https://a.example/é?x=1#y", "http://a.example/%20", "mailto:ann@a.example"])
SUFFIXES = st.one_of(
    st.just(""),
    st.sampled_from(["@en", "@EN-gb", "@x-1a"]),
    IRIS.map(lambda iri: f"^^<{iri}>"),
    st.just("^^<http://www.w3.org/2001/XMLSchema#string>"),
)


def _escaped(text: str) -> str:
    return "".join(f"\\U{ord(entry):08X}" if not entry.isalnum() else entry for entry in text)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(IRIS, TEXTS, SUFFIXES), min_size=1, max_size=5), st.sampled_from(["a.nt", "a.ttl", "a.nq"]))
def test_terms_are_decoded_as_in_the_model(triples: list[tuple[str, str, str]], name: str) -> None:
    text = "".join(f'<{iri}> <urn:p> "{_escaped(text)}"{suffix} .\n' for iri, text, suffix in triples)
    decoded = graph(text, name)
    assert decoded == read_ntriples(text)
    assert read_ntriples(decoded) == decoded


def test_text_direction_is_ignored() -> None:
    assert graph('<urn:a> <urn:p> "x"@ar--rtl .') == '<urn:a> <urn:p> "x"@ar .\n'


# --- feeds that are RDF --------------------------------------------------------------------------------------------


def people() -> list[Item]:
    return read((DATA / "rss_1.0_people.rdf").read_bytes(), "people.rdf").items


def objects(item: Item) -> set[str]:
    value = item.first(GRAPH)
    assert isinstance(value, RdfGraph)
    return {object for _, _, object in value.triples()}


def test_entries_of_rdf_feeds_have_attributes_and_graphs() -> None:
    entry, other = people()
    assert (entry.first("title"), entry.first("link"), other.first("title")) == (
        "One",
        "https://see.example/1",
        "Two",
    )
    assert '"Bob"' in objects(entry)
    assert '"Bob"' not in objects(other)
    assert all('"Ann"' in objects(item) for item in (entry, other))
    assert all('"Ann\'s page"' in objects(item) for item in (entry, other)), "IRIs are followed as blank nodes are"


def test_graph_contains_only_reachable_nodes_without_channel_and_other_items() -> None:
    value, other = people()
    assert "<https://see.example/news/2>" in objects(value), "the triple that refers to it is included"
    assert not {'"Two"', '"Seen"', '"Not reached"'} & objects(value)
    assert not {'"One"', '"Seen"', '"Not reached"'} & objects(other)


def test_graph_does_not_change_with_new_items() -> None:
    text = (DATA / "rss_1.0_people.rdf").read_text("utf-8")
    more = '<item rdf:about="3"><title>Three</title><link>/3</link><foaf:maker><foaf:Person/></foaf:maker></item>'
    longer = text.replace('  <item rdf:about="2">', f'  {more}\n  <item rdf:about="2">')
    items = {item.first("title"): item for item in read(longer, "people.rdf").items}
    assert len(items) == 3
    for item in people():
        assert items[item.first("title")].attributes == item.attributes


@pytest.mark.parametrize("name", ["rss_0.90.rdf", "rss_1.0.rdf"])
def test_entries_of_old_rss_versions_have_graphs(name: str) -> None:
    item = only(read((DATA / name).read_bytes(), name))
    assert len(objects(item)) >= 3


RSS_1 = (
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">'
    "<channel{channel}><title>T</title></channel><item{item}><title>One</title><link>https://a.example/1</link>{more}"
    "</item></rdf:RDF>"
)


def test_feed_with_invalid_rdf_keeps_its_items() -> None:
    feed = read(RSS_1.format(channel="", item="", more="<x:b xmlns:x='urn:x'>text<x:c/></x:b>"), "a.rdf")
    assert only(feed).first("title") == "One"
    assert GRAPH not in only(feed).attributes
    assert (feed.note or "").startswith("the entries have no graphs: ")


def test_repaired_feed_has_graphs() -> None:
    feed = read(RSS_1.format(channel="", item="", more="<description>Q & A</description>"), "a.rdf")
    assert '"Q & A"' in objects(only(feed))
    assert (feed.note or "").startswith("read tolerantly")


def test_graph_of_a_repeated_item_has_the_triples_of_both_elements() -> None:
    twice = '<item rdf:about="urn:1"><description>again</description></item>'
    text = RSS_1.format(channel="", item=' rdf:about="urn:1"', more="").replace("</rdf:RDF>", f"{twice}</rdf:RDF>")
    feed = read(text, "a.rdf")
    assert len(feed.problems) == 1
    assert {'"One"', '"again"'} <= objects(feed.items[0])


def test_element_named_graph_is_a_text() -> None:
    feed = read("<rss><channel><item><guid>1</guid><graph>a b c</graph></item></channel></rss>", "a.xml")
    assert only(feed).attributes == {"graph:text": ("a b c",)}
