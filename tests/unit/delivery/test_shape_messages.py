"""Stylesheets are applied to messages by the real transformer, and their output is read by the real decoder."""

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


def stylesheet(body: str, method: str = "xml") -> bytes:
    head = '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
    return f'{head}<xsl:output method="{method}"/>{body}</xsl:stylesheet>'.encode()


def decode_items(data: bytes, name: str) -> Sequence[Item]:
    return adapt(decode(data, name), "News").items


@pytest.fixture(scope="module")
def transformer() -> Iterator[StylesheetTransformer]:
    transformer = StylesheetTransformer(seconds=5, megabytes=512)
    yield transformer
    transformer.close()


@pytest.fixture
def to(make_item: Make, make_delivery: Make) -> Callable[..., Delivery]:
    def make(kind: str, *items: Item) -> Delivery:
        default_items = (
            make_item("a", 4, version=3, title="Muse", link="https://muse.example/a", description="Rock"),
            make_item("b", 7, title="Ring", link="https://muse.example/b"),
        )
        delivery: Delivery = make_delivery("me", *(items or default_items))
        return replace(delivery, subscription=replace(delivery.subscription, kind=kind, sheet="sheets/x.xsl"))

    return make


def titles(delivery: Delivery) -> list[Any]:
    return [delivered.item.first("title") for delivered in delivery.items]


def keys(delivery: Delivery) -> list[tuple[str, str, int, int | None]]:
    return [
        (delivered.item.feed, delivered.item.id, delivered.item.version, delivered.item.sequence)
        for delivered in delivery.items
    ]


def test_stylesheet_gets_the_message_as_rss_newest_first(to: Make) -> None:
    delivery = to("mail")
    document = rss_document(delivery)
    assert is_feed(document)
    assert document.index(b"<title>Ring</title>") < document.index(b"<title>Muse</title>")
    assert [item.first("title") for item in decode_items(document, "x")] == ["Muse", "Ring"]


def test_entries_of_the_output_replace_the_items_and_keep_their_identity(
    to: Make, transformer: StylesheetTransformer
) -> None:
    delivery = to("rss")
    louder = stylesheet(
        COPY + '<xsl:template match="item/title"><title>LOUD <xsl:value-of select="."/></title></xsl:template>'
    )
    shaped = apply_stylesheet(delivery, transformer, louder, decode_items)
    assert titles(shaped) == ["LOUD Muse", "LOUD Ring"]
    assert keys(shaped) == keys(delivery) == [("News", "a", 3, 4), ("News", "b", 1, 7)]
    assert [delivered.feed_title for delivered in shaped.items] == ["The News", "The News"]
    assert [entry_id(delivered.item) for delivered in shaped.items] == [
        entry_id(delivered.item) for delivered in delivery.items
    ]
    assert shaped.content is None


def test_stylesheet_can_remove_entries(to: Make, transformer: StylesheetTransformer) -> None:
    fewer = stylesheet(COPY + "<xsl:template match=\"item[title='Muse']\"/>")
    shaped = apply_stylesheet(to("rss"), transformer, fewer, decode_items)
    assert keys(shaped) == [("News", "b", 1, 7)]


def test_entries_without_guid_are_recognized_by_link(to: Make, transformer: StylesheetTransformer) -> None:
    bare = stylesheet(COPY + '<xsl:template match="guid"/>')
    assert keys(apply_stylesheet(to("rss"), transformer, bare, decode_items)) == [
        ("News", "a", 3, 4),
        ("News", "b", 1, 7),
    ]


def test_link_of_several_items_does_not_identify_an_entry(
    to: Make, transformer: StylesheetTransformer, make_item: Make
) -> None:
    link = "https://muse.example/"
    bare = stylesheet(COPY + '<xsl:template match="guid"/>' + "<xsl:template match=\"item[title='Ring']\"/>")
    delivery = to("rss", make_item("a", 4, title="Muse", link=link), make_item("b", 7, title="Ring", link=link))
    assert keys(apply_stylesheet(delivery, transformer, bare, decode_items)) == [("RockConcerts", link, 1, 7)]


def test_only_entry_without_guid_and_link_is_the_only_item(
    to: Make, transformer: StylesheetTransformer, make_item: Make
) -> None:
    bare = stylesheet(COPY + '<xsl:template match="guid|item/link"/>')
    delivery = to("rss", make_item("a", 4, version=3, title="Muse"))
    assert keys(apply_stylesheet(delivery, transformer, bare, decode_items)) == [("News", "a", 3, 4)]


def test_guid_that_the_stylesheet_creates_is_kept(to: Make, transformer: StylesheetTransformer) -> None:
    own = stylesheet(
        COPY + '<xsl:template match="guid"><guid isPermaLink="false">own-<xsl:value-of select="../title"/></guid>'
        "</xsl:template>"
    )
    shaped = apply_stylesheet(to("rss"), transformer, own, decode_items)
    assert keys(shaped) == [("RockConcerts", "own-Muse", 1, 7), ("RockConcerts", "own-Ring", 1, 7)]


def test_stylesheet_can_turn_one_item_into_two_entries(
    to: Make, transformer: StylesheetTransformer, make_item: Make
) -> None:
    link = "https://muse.example/a"
    twice = stylesheet(
        '<xsl:template match="/"><rss version="2.0"><channel><title>x</title>'
        f"<item><link>{link}</link><title>one</title></item>"
        f"<item><guid>two</guid><link>{link}</link><title>two</title></item></channel></rss></xsl:template>"
    )
    delivery = to("rss", make_item("a", 4, link=link))
    assert sorted(keys(apply_stylesheet(delivery, transformer, twice, decode_items))) == [
        ("News", "a", 1, 4),
        ("RockConcerts", "two", 1, 4),
    ]


def test_atom_output_is_a_feed(to: Make, transformer: StylesheetTransformer) -> None:
    atom = stylesheet(
        '<xsl:template match="/"><feed xmlns="http://www.w3.org/2005/Atom"><title>x</title><id>urn:x</id>'
        '<xsl:for-each select="//item"><entry><id><xsl:value-of select="guid"/></id>'
        '<title><xsl:value-of select="title"/>!</title></entry></xsl:for-each></feed></xsl:template>'
    )
    shaped = apply_stylesheet(to("rss"), transformer, atom, decode_items)
    assert titles(shaped) == ["Muse!", "Ring!"]
    assert keys(shaped) == [("News", "a", 3, 4), ("News", "b", 1, 7)]


def test_delivering_a_shaped_message_twice_does_not_change_the_file(
    to: Make, transformer: StylesheetTransformer, tmp_path: Path
) -> None:
    louder = stylesheet(COPY + '<xsl:template match="item/title"><title>LOUD</title></xsl:template>')
    shaped = apply_stylesheet(to("rss"), transformer, louder, decode_items)
    assert RssFile().deliver(shaped).startswith("2 new of 2 entries")
    again = apply_stylesheet(to("rss"), transformer, louder, decode_items)
    assert RssFile().deliver(again) == "nothing new"


@pytest.mark.parametrize("kind", ["mail", "webhook"])
def test_output_that_is_not_a_feed_is_content_for_sinks_that_accept_it(
    to: Make, transformer: StylesheetTransformer, kind: str
) -> None:
    text = stylesheet('<xsl:template match="/"><xsl:value-of select="count(//item)"/> items</xsl:template>', "text")
    html = stylesheet('<xsl:template match="/"><html><body><p>Hi</p></body></html></xsl:template>', "html")
    report = stylesheet('<xsl:template match="/"><report/></xsl:template>')
    contents = [
        apply_stylesheet(to(kind), transformer, stylesheet, decode_items).content
        for stylesheet in (text, html, report)
    ]
    assert contents[0] == Content("text/plain; charset=utf-8", b"2 items")
    assert [content.media_type for content in contents if content] == [
        "text/plain; charset=utf-8",
        "text/html; charset=utf-8",
        "application/xml; charset=utf-8",
    ]


@pytest.mark.parametrize("kind", ["rss", "atom", "json", "jsonl"])
def test_feed_files_reject_output_that_is_not_a_feed(to: Make, transformer: StylesheetTransformer, kind: str) -> None:
    text = stylesheet('<xsl:template match="/">words</xsl:template>', "text")
    with pytest.raises(DeliveryError) as caught:
        apply_stylesheet(to(kind), transformer, text, decode_items)
    assert caught.value.permanent
    assert kind in caught.value.message
    assert caught.value.hint


def test_feed_is_content_without_a_decoder(to: Make, transformer: StylesheetTransformer) -> None:
    shaped = apply_stylesheet(to("webhook"), transformer, stylesheet(COPY))
    assert shaped.content is not None
    assert is_feed(shaped.content.data)
    assert len(shaped.items) == 2


def test_invalid_feed_is_reported_as_an_error_of_the_stylesheet(to: Make, transformer: StylesheetTransformer) -> None:
    def refuse(data: bytes, name: str) -> Sequence[Item]:
        raise BrokenDocumentError("not a feed", place=name)

    with pytest.raises(StylesheetError) as caught:
        apply_stylesheet(to("rss"), transformer, stylesheet(COPY), refuse)
    assert "sheets/x.xsl" in str(caught.value)


def test_failing_stylesheet_raises_stylesheet_error(to: Make, transformer: StylesheetTransformer) -> None:
    endless = stylesheet('<xsl:template match="/"><xsl:apply-templates select="/"/></xsl:template>')
    with pytest.raises(StylesheetError):
        apply_stylesheet(to("mail"), transformer, endless, decode_items)


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
def test_feeds_are_recognized_by_their_root_element(data: bytes, feed: bool) -> None:
    assert is_feed(data) is feed


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_is_feed_accepts_any_bytes(data: bytes) -> None:
    assert is_feed(data) in (True, False)
