"""Bindings in what is delivered: in every format, whatever they hold; and nothing where there are none."""

from __future__ import annotations

import email
import email.policy
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.unit.sinks.conftest import SENT, Deliver

from runnel.delivery.shape_messages import apply_stylesheet
from runnel.engine.open_delivery import _read_entries
from runnel.model.bindings import Bindings, bounded
from runnel.model.item import Item
from runnel.model.subscription import Subscription
from runnel.sandbox.stylesheet_process import StylesheetTransformer
from runnel.sinks.contract import DeliveredItem, Delivery
from runnel.sinks.files.feed_entries import show
from runnel.sinks.files.feed_file import AtomFile, JsonFeedFile, RssFile
from runnel.sinks.files.lines_file import JsonLinesFile
from runnel.sinks.files.render_rss import rss_document
from runnel.sinks.mail.compose_mail import compose_mail
from runnel.sinks.mail.mail_address import sender_of
from runnel.sinks.mail.render_mail import Rendered, render_mail
from runnel.sinks.materialized_feed import MaterializedFeed, bound_attributes
from runnel.sinks.webhook import webhook_body

Make = Callable[..., Any]
RUNNEL = "{https://runnel.example/ns/feed/1}"
PEOPLE = bounded([{"people": 60.0, "place": "Bronx"}, {"people": 70.5, "place": "Queens"}])
HOSTILE = "<b>&\"'</runnel:binding>]]>\x01\r\nBcc: you@mail.example \u202e"
SINKS = [(RssFile(), "a.xml"), (AtomFile(), "a.xml"), (JsonFeedFile(), "a.json"), (JsonLinesFile(), "a.jsonl")]


def bound(delivery: Delivery, bindings: Bindings) -> Delivery:
    return replace(delivery, items=[replace(item, bindings=bindings) for item in delivery.items])


def written(folder: Path, sink: Any, delivery: Delivery) -> bytes:
    """What a file sink writes for a delivery into a folder of its own."""
    sink.deliver(replace(delivery, out=folder))
    [file] = [path for path in folder.iterdir() if path.is_file()]
    return file.read_bytes()


def rows_of(data: bytes) -> list[dict[str, tuple[str | None, str | None]]]:
    """The rows of bindings in an XML document: by name the type and the text."""
    root = etree.fromstring(data)
    return [
        {str(entry.get("name")): (entry.get("type"), entry.text) for entry in row}
        for row in root.iter(f"{RUNNEL}row")
    ]


@pytest.fixture
def delivery(make_item: Make, make_delivery: Deliver) -> Delivery:
    item = make_item("a", 1, description="Three nights.", link="https://muse.example/")
    return make_delivery("file", item)


# --- files ---------------------------------------------------------------------------------------------------------


def test_json_lines_and_webhooks_contain_the_bindings(delivery: Delivery, tmp_path: Path) -> None:
    moment = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
    rows = bounded([{"n": 60.0, "half": 0.5, "is": True, "at": moment, "large": 1e15, "below": -3.0}])
    expected = [
        {"at": "2026-11-15T09:30:00+00:00", "below": -3, "half": 0.5, "is": True, "large": 1e15, "n": 60},
    ]
    line = json.loads(written(tmp_path / "lines", JsonLinesFile(), bound(delivery, rows)))
    assert line["bindings"] == expected
    assert "more_bindings" not in line
    [item] = json.loads(webhook_body(bound(delivery, rows)))["data"]["items"]
    assert item["bindings"] == expected
    assert b'"n":60}' in webhook_body(bound(delivery, rows)), "as the language prints it"
    many = bounded({"n": float(n)} for n in range(130))
    [item] = json.loads(webhook_body(bound(delivery, many)))["data"]["items"]
    assert (len(item["bindings"]), item["more_bindings"]) == (100, 30)


def test_feed_files_contain_the_bindings_in_runnels_namespace(delivery: Delivery, tmp_path: Path) -> None:
    expected = [
        {"people": ("number", "60"), "place": ("text", "Bronx")},
        {"people": ("number", "70.5"), "place": ("text", "Queens")},
    ]
    for sink in (RssFile(), AtomFile()):
        data = written(tmp_path / sink.kind, sink, bound(delivery, PEOPLE))
        assert rows_of(data) == expected
        assert b'<runnel:binding name="people" type="number">60</runnel:binding>' in data
    document = json.loads(written(tmp_path / "json", JsonFeedFile(), bound(delivery, PEOPLE)))
    [entry] = document["items"]
    assert entry["_runnel"]["bindings"] == [{"people": 60, "place": "Bronx"}, {"people": 70.5, "place": "Queens"}]
    more = written(tmp_path / "more", RssFile(), bound(delivery, Bindings(({"x": True},), 4)))
    assert b'<runnel:bindings more="3">' in more
    assert rows_of(more) == [{"x": ("boolean", "true")}]


@pytest.mark.parametrize(("sink", "target"), SINKS)
def test_a_file_is_read_back_with_its_bindings(
    make_item: Make, make_delivery: Deliver, tmp_path: Path, sink: Any, target: str
) -> None:
    first = bound(make_delivery(target, make_item("a", 1)), bounded([{"x": "one"}]))
    second = bound(make_delivery(target, make_item("b", 2), key="m2"), bounded([{"x": "two"}]))
    sink.deliver(first)
    sink.deliver(second)
    sink.deliver(make_delivery(target, make_item("c", 3), key="m3"))
    data = (tmp_path / "out" / target).read_bytes()
    assert (data.count(b"one"), data.count(b"two")) == (1, 1)
    assert sink.deliver(second) == "nothing new"
    assert (tmp_path / "out" / target).read_bytes() == data


@pytest.mark.parametrize(("sink", "target"), SINKS)
def test_outputs_without_bindings_are_unchanged(delivery: Delivery, tmp_path: Path, sink: Any, target: str) -> None:
    plain = written(tmp_path / "plain", sink, delivery)
    assert b"binding" not in plain
    assert written(tmp_path / "none", sink, bound(delivery, bounded([{}]))) == plain
    with_rows = written(tmp_path / "rows", sink, bound(delivery, PEOPLE))
    assert with_rows != plain
    if isinstance(sink, RssFile | AtomFile):
        root = etree.fromstring(with_rows)
        for element in list(root.iter(f"{RUNNEL}bindings")):
            parent = element.getparent()
            assert parent is not None
            parent.remove(element)
        canonical = [
            b"".join(etree.tostring(value, method="c14n").split()) for value in (root, etree.fromstring(plain))
        ]
        assert canonical[0] == canonical[1], "what was there stays as it was"


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(st.text(max_size=30), st.just(HOSTILE)), name=st.text(min_size=1, max_size=8))
def test_values_of_bindings_are_escaped(tmp_path_factory: pytest.TempPathFactory, text: str, name: str) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    item = Item("News", "a", {"title": ("Muse",)}, 1, 1, SENT)
    made = Delivery(
        "m1",
        Subscription(1, 2, "rss", "file", 0, SENT),
        "Rock",
        "Rock",
        [DeliveredItem(item, "News", bounded([{name: text}]))],
        SENT,
        folder,
    )
    for number, sink in enumerate((RssFile(), AtomFile())):
        root = etree.fromstring(written(folder / str(number), sink, made))
        [element] = root.iter(f"{RUNNEL}binding")
        shown = show(made.items[0], SENT).bindings.rows[0]
        assert {element.get("name"): element.text or ""} == shown
        assert len(element) == 0
    for other in (JsonFeedFile(), JsonLinesFile()):
        data = written(folder / other.kind, other, made)
        assert json.loads(data)
        if isinstance(other, JsonLinesFile):
            assert data.count(b"\n") == 1
    assert json.loads(webhook_body(made))["data"]["items"][0]["id"] == "a"
    mail = _mail(made)
    assert "Bcc" not in mail
    page = mail.get_body(("html",))
    assert page is not None
    assert "<b>" not in page.get_content()


# --- mail ----------------------------------------------------------------------------------------------------------


def _mail(delivery: Delivery) -> Any:
    data = compose_mail(delivery, render_mail(delivery), sender_of("Runnel <a@muse.example>"), "me@mail.example")
    return email.message_from_bytes(data, policy=email.policy.default)


def test_mails_have_one_line_per_row(delivery: Delivery) -> None:
    rendered = render_mail(bound(delivery, PEOPLE))
    assert "\nThe News\npeople: 60, place: Bronx\npeople: 70.5, place: Queens\n\nThree nights." in rendered.text
    assert '<p class="about">people: 60, place: Bronx</p>' in (rendered.html or "")
    many = render_mail(bound(delivery, bounded({"x": float(n)} for n in range(130))))
    assert "x: 4\nand 125 more\n" in many.text
    assert "x: 5\n" not in many.text


def test_row_in_a_mail_is_one_safe_line(delivery: Delivery) -> None:
    rendered = render_mail(bound(delivery, bounded([{"x": HOSTILE}])))
    [line] = [value for value in rendered.text.splitlines() if value.startswith("x: ")]
    assert "Bcc: you@mail.example" in line
    assert "\u202e" not in rendered.text
    assert "&lt;b&gt;&amp;&quot;" in (rendered.html or "")


def test_mails_without_bindings_are_unchanged(delivery: Delivery) -> None:
    plain = render_mail(delivery)
    assert render_mail(bound(delivery, bounded([{}]))) == plain
    shown = render_mail(bound(delivery, bounded([{"x": 1.0}])))
    html = (shown.html or "").replace('<p class="about">x: 1</p>', "")
    assert Rendered(shown.subject, shown.text.replace("x: 1\n", ""), html) == plain


# --- stylesheets and materialised feeds --------------------------------------------------------------------------


def test_stylesheets_receive_bindings_and_their_output_keeps_them(delivery: Delivery) -> None:
    sheet = b"""<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
      xmlns:runnel="https://runnel.example/ns/feed/1">
      <xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>
      <xsl:template match="item/title"><title><xsl:value-of
        select="count(../runnel:bindings/runnel:row[runnel:binding[@name='people'] &gt; 65])"/> crowds</title>
      </xsl:template></xsl:stylesheet>"""
    transformer = StylesheetTransformer(seconds=5, megabytes=512)
    try:
        shaped = apply_stylesheet(bound(delivery, PEOPLE), transformer, sheet, _read_entries)
    finally:
        transformer.close()
    [entry] = shaped.items
    assert entry.item.first("title") == "1 crowds"
    assert entry.bindings == PEOPLE
    assert not [name for name in entry.item.attributes if "binding" in name]


def test_derived_items_have_bindings_as_attributes(delivery: Delivery) -> None:
    taken: list[Any] = []

    def accept(feed: int, data: bytes, place: str, given: Any) -> str:
        taken.append((data, given))
        return "taken"

    sent = replace(bound(delivery, PEOPLE), subscription=Subscription(1, 2, "feed", "7", 0, SENT))
    MaterializedFeed().deliver(replace(sent, accept=accept))
    [(data, given)] = taken
    assert data == rss_document(sent)
    guid = etree.fromstring(data).findtext(".//guid")
    assert given == {guid: {"binding:people": (60.0, 70.5), "binding:place": ("Bronx", "Queens")}}
    MaterializedFeed().deliver(replace(sent, items=delivery.items, accept=accept))
    assert taken[1][1] == {}
    assert bound_attributes(bounded([{"x": "", "y" * 300: 1.0}])) == {}
