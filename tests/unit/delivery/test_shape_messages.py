"""Stylesheets on messages, applied by the real transformer and read back by the real decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.delivery.shape_messages import apply_stylesheet, is_feed
from runnel.errors import BrokenDocumentError, DeliveryError, StylesheetError
from runnel.model.item import Item
from runnel.sandbox.stylesheet_process import StylesheetTransformer
from runnel.sinks.contract import Content, Delivery
from runnel.sinks.files.feed_entries import entry_id
from runnel.sinks.files.feed_file import RssFile
from runnel.sinks.files.render_rss import rss_document
from runnel.sources.documents.adapt import adapt
from runnel.sources.documents.decode import decode

Make = Callable[..., Any]
COPY = '<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>'


def sheet(body: str, method: str = "xml") -> bytes:
    head = '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
    return f'{head}<xsl:output method="{method}"/>{body}</xsl:stylesheet>'.encode()


def decoded(data: bytes, name: str) -> Sequence[Item]:
    return adapt(decode(data, name), "News").items


@pytest.fixture(scope="module")
def transformer() -> Iterator[StylesheetTransformer]:
    made = StylesheetTransformer(seconds=5, megabytes=512)
    yield made
    made.close()


@pytest.fixture
def to(make_item: Make, make_delivery: Make) -> Callable[..., Delivery]:
    def make(kind: str, *items: Item) -> Delivery:
        two = (
            make_item("a", 4, version=3, title="Muse", link="https://muse.example/a", description="Rock"),
            make_item("b", 7, title="Ring", link="https://muse.example/b"),
        )
        made: Delivery = make_delivery("me", *(items or two))
        return replace(made, subscription=replace(made.subscription, kind=kind, sheet="sheets/x.xsl"))

    return make


def titles(delivery: Delivery) -> list[Any]:
    return [one.item.first("title") for one in delivery.items]


def keys(delivery: Delivery) -> list[tuple[str, str, int, int | None]]:
    return [(one.item.feed, one.item.id, one.item.version, one.item.sequence) for one in delivery.items]


def test_the_stylesheet_gets_the_message_as_rss_newest_first(to: Make) -> None:
    delivery = to("mail")
    document = rss_document(delivery)
    assert is_feed(document)
    assert document.index(b"<title>Ring</title>") < document.index(b"<title>Muse</title>")
    assert [item.first("title") for item in decoded(document, "x")] == ["Muse", "Ring"]


def test_entries_of_a_feed_take_the_place_of_the_items_and_stay_who_they_are(
    to: Make, transformer: StylesheetTransformer
) -> None:
    delivery = to("rss")
    louder = sheet(
        COPY + '<xsl:template match="item/title"><title>LOUD <xsl:value-of select="."/></title></xsl:template>'
    )
    shaped = apply_stylesheet(delivery, transformer, louder, decoded)
    assert titles(shaped) == ["LOUD Muse", "LOUD Ring"]
    assert keys(shaped) == keys(delivery) == [("News", "a", 3, 4), ("News", "b", 1, 7)]
    assert [one.feed_title for one in shaped.items] == ["The News", "The News"]
    assert [entry_id(one.item) for one in shaped.items] == [entry_id(one.item) for one in delivery.items]
    assert shaped.content is None


def test_entries_may_be_left_out(to: Make, transformer: StylesheetTransformer) -> None:
    fewer = sheet(COPY + "<xsl:template match=\"item[title='Muse']\"/>")
    shaped = apply_stylesheet(to("rss"), transformer, fewer, decoded)
    assert keys(shaped) == [("News", "b", 1, 7)]


def test_without_guids_entries_are_known_by_their_links(to: Make, transformer: StylesheetTransformer) -> None:
    bare = sheet(COPY + '<xsl:template match="guid"/>')
    assert keys(apply_stylesheet(to("rss"), transformer, bare, decoded)) == [("News", "a", 3, 4), ("News", "b", 1, 7)]


def test_a_link_that_several_items_have_tells_nothing(
    to: Make, transformer: StylesheetTransformer, make_item: Make
) -> None:
    link = "https://muse.example/"
    bare = sheet(COPY + '<xsl:template match="guid"/>' + "<xsl:template match=\"item[title='Ring']\"/>")
    delivery = to("rss", make_item("a", 4, title="Muse", link=link), make_item("b", 7, title="Ring", link=link))
    assert keys(apply_stylesheet(delivery, transformer, bare, decoded)) == [("RockConcerts", link, 1, 7)]


def test_an_only_entry_without_guid_and_link_is_the_only_item(
    to: Make, transformer: StylesheetTransformer, make_item: Make
) -> None:
    bare = sheet(COPY + '<xsl:template match="guid|item/link"/>')
    delivery = to("rss", make_item("a", 4, version=3, title="Muse"))
    assert keys(apply_stylesheet(delivery, transformer, bare, decoded)) == [("News", "a", 3, 4)]


def test_a_guid_of_the_stylesheets_own_is_kept(to: Make, transformer: StylesheetTransformer) -> None:
    own = sheet(
        COPY + '<xsl:template match="guid"><guid isPermaLink="false">own-<xsl:value-of select="../title"/></guid>'
        "</xsl:template>"
    )
    shaped = apply_stylesheet(to("rss"), transformer, own, decoded)
    assert keys(shaped) == [("RockConcerts", "own-Muse", 1, 7), ("RockConcerts", "own-Ring", 1, 7)]


def test_one_item_may_become_two_entries(to: Make, transformer: StylesheetTransformer, make_item: Make) -> None:
    link = "https://muse.example/a"
    twice = sheet(
        '<xsl:template match="/"><rss version="2.0"><channel><title>x</title>'
        f"<item><link>{link}</link><title>one</title></item>"
        f"<item><guid>two</guid><link>{link}</link><title>two</title></item></channel></rss></xsl:template>"
    )
    delivery = to("rss", make_item("a", 4, link=link))
    assert sorted(keys(apply_stylesheet(delivery, transformer, twice, decoded))) == [
        ("News", "a", 1, 4),
        ("RockConcerts", "two", 1, 4),
    ]


def test_atom_is_a_feed_too(to: Make, transformer: StylesheetTransformer) -> None:
    atom = sheet(
        '<xsl:template match="/"><feed xmlns="http://www.w3.org/2005/Atom"><title>x</title><id>urn:x</id>'
        '<xsl:for-each select="//item"><entry><id><xsl:value-of select="guid"/></id>'
        '<title><xsl:value-of select="title"/>!</title></entry></xsl:for-each></feed></xsl:template>'
    )
    shaped = apply_stylesheet(to("rss"), transformer, atom, decoded)
    assert titles(shaped) == ["Muse!", "Ring!"]
    assert keys(shaped) == [("News", "a", 3, 4), ("News", "b", 1, 7)]


def test_a_shaped_message_again_changes_nothing_in_a_file(
    to: Make, transformer: StylesheetTransformer, tmp_path: Path
) -> None:
    louder = sheet(COPY + '<xsl:template match="item/title"><title>LOUD</title></xsl:template>')
    shaped = apply_stylesheet(to("rss"), transformer, louder, decoded)
    assert RssFile().deliver(shaped).startswith("2 new of 2 entries")
    again = apply_stylesheet(to("rss"), transformer, louder, decoded)
    assert RssFile().deliver(again) == "nothing new"


@pytest.mark.parametrize("kind", ["mail", "webhook"])
def test_anything_else_is_content_for_those_who_can_carry_it(
    to: Make, transformer: StylesheetTransformer, kind: str
) -> None:
    text = sheet('<xsl:template match="/"><xsl:value-of select="count(//item)"/> items</xsl:template>', "text")
    html = sheet('<xsl:template match="/"><html><body><p>Hi</p></body></html></xsl:template>', "html")
    report = sheet('<xsl:template match="/"><report/></xsl:template>')
    made = [apply_stylesheet(to(kind), transformer, one, decoded).content for one in (text, html, report)]
    assert made[0] == Content("text/plain; charset=utf-8", b"2 items")
    assert [one.media_type for one in made if one] == [
        "text/plain; charset=utf-8",
        "text/html; charset=utf-8",
        "application/xml; charset=utf-8",
    ]


@pytest.mark.parametrize("kind", ["rss", "atom", "json", "jsonl"])
def test_feed_files_refuse_what_is_no_feed(to: Make, transformer: StylesheetTransformer, kind: str) -> None:
    text = sheet('<xsl:template match="/">words</xsl:template>', "text")
    with pytest.raises(DeliveryError) as caught:
        apply_stylesheet(to(kind), transformer, text, decoded)
    assert caught.value.permanent
    assert kind in caught.value.message
    assert caught.value.hint


def test_without_a_decoder_a_feed_is_content(to: Make, transformer: StylesheetTransformer) -> None:
    shaped = apply_stylesheet(to("webhook"), transformer, sheet(COPY))
    assert shaped.content is not None
    assert is_feed(shaped.content.data)
    assert len(shaped.items) == 2


def test_a_feed_that_cannot_be_read_is_the_stylesheets_fault(to: Make, transformer: StylesheetTransformer) -> None:
    def refuse(data: bytes, name: str) -> Sequence[Item]:
        raise BrokenDocumentError("not a feed after all", place=name)

    with pytest.raises(StylesheetError) as caught:
        apply_stylesheet(to("rss"), transformer, sheet(COPY), refuse)
    assert "sheets/x.xsl" in str(caught.value)


def test_a_failing_stylesheet_is_told(to: Make, transformer: StylesheetTransformer) -> None:
    endless = sheet('<xsl:template match="/"><xsl:apply-templates select="/"/></xsl:template>')
    with pytest.raises(StylesheetError):
        apply_stylesheet(to("mail"), transformer, endless, decoded)


@pytest.mark.parametrize(
    ("data", "feed"),
    [
        (b"", False),
        (b"rss", False),
        (b"<rss", False),
        (b"<rss>", True),
        (b"<?xml version='1.0'?><!-- x --><rss/>", True),
        (b"<x:rss xmlns:x='urn:x'/>", False),
        (b"<feed/>", False),
        (b"<feed xmlns='http://www.w3.org/2005/Atom'/>", True),
        (b"<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'/>", True),
        (b"<html><rss/></html>", False),
        (b"<rss><broken", True),
        (b"\xff\xfe<rss/>", False),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><html>&b;</html>", False),
    ],
)
def test_feeds_are_known_by_their_beginning(data: bytes, feed: bool) -> None:
    assert is_feed(data) is feed


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_anything_can_be_looked_at(data: bytes) -> None:
    assert is_feed(data) in (True, False)
