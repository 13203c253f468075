"""Annotations from the match to every output: one message with joined items in all of them, repeated and bounded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import feedparser
import pytest
from lxml import etree
from tests.integration.in_process import InProcess
from tests.unit.sinks.files.feed_rules import atom_problems, json_feed_problems, rss_problems

import runnel
from runnel.engine import Engine
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.errors import DeliveryError
from runnel.model.annotation import JoinedItems
from runnel.sinks.contract import DeliveredItem, Delivery
from runnel.sinks.files.render_rss import rss_document
from runnel.sinks.mail.render_mail import render_mail
from runnel.sinks.webhook import webhook_body
from runnel.testing import FakeClock, MemorySink

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "photos"
OWN = "{https://runnel.example/ns/feed/1}"
SHOWN = """
register feed News; register feed Photos;
create feed Shown from News as $n join last 3 days on Photos as $photos with $n[band = window.band];
"""
IDENTITY = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>
</xsl:stylesheet>"""
HTML = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
  xmlns:runnel="https://runnel.example/ns/feed/1"><xsl:output method="html"/>
<xsl:template match="/"><html><body><xsl:for-each select="//runnel:annotations/runnel:item">
<a href="{runnel:link}"><xsl:value-of select="runnel:title"/></a></xsl:for-each></body></html></xsl:template>
</xsl:stylesheet>"""
PICTURE = {"enclosure": "https://photos.example/1.jpg", "enclosure:type": "image/jpeg"}
PHOTO = {"id": "p1", "title": "Muse on stage", "link": "https://photos.example/1", "band": "Muse", **PICTURE}
HOSTILE = {
    "id": "p\x01<2>",
    "title": "<script>alert(1)</script>\x07 & ]]>",
    "link": "javascript:alert(1)",
    "enclosure": "data:text/html,<script>",
    "description:html": "<p onclick='x()'>ok<script>x()</script><a href='javascript:x'>y</a></p>",
    "author": "<b>Eve</b>",
    "band": "Muse",
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(tmp_path: Path, clock: FakeClock) -> Iterator[Engine]:
    MemorySink.clear()
    with runnel.connect(tmp_path / "workspace", clock=clock) as opened:
        sheets = opened.workspace.folder / "sheets"
        sheets.mkdir(exist_ok=True)
        (sheets / "same.xsl").write_text(IDENTITY)
        (sheets / "html.xsl").write_text(HTML)
        opened.execute(SHOWN)
        yield opened
    MemorySink.clear()


@pytest.fixture
def runner(engine: Engine) -> Iterator[InProcess]:
    made = InProcess(engine)
    yield made
    made.close()


def publish_news(engine: Engine, identifier: str = "n1") -> None:
    news = {"id": identifier, "title": "Muse tonight", "link": "https://n.example/1", "band": "Muse"}
    engine.publish("News", [news])


def delivered(key: str) -> list[DeliveredItem]:
    return [one for message in MemorySink.delivered(key) for one in message.items]


def joined(key: str) -> list[tuple[str, list[str], int]]:
    return [
        (one.item.id, [item.id for item in annotation.items], annotation.count)
        for one in delivered(key)
        for annotation in one.annotations
    ]


def read_out(engine: Engine, name: str) -> bytes:
    return (engine.workspace.folder / "out" / name).read_bytes()


def test_every_output_shows_the_joined_items(engine: Engine, runner: InProcess) -> None:
    engine.execute(
        "subscribe to Shown output jsonl 's.jsonl'; subscribe to Shown output json 's.json';"
        "subscribe to Shown output rss 's.xml'; subscribe to Shown output atom 's.atom';"
        "subscribe to Shown output memory 's'; subscribe to Shown apply 'same.xsl' output rss 'same.xml';"
    )
    engine.publish("Photos", [PHOTO, {"id": "p2", "title": "Other", "band": "Jazz"}])
    publish_news(engine)
    runner.run()

    attributes = {name: [value] for name, value in PHOTO.items() if name != "id"}
    photo = {"feed": "Photos", "id": "p1", "version": 1, "attributes": attributes}
    expected = {"photos": {"items": [photo], "count": 1}}
    assert json.loads(read_out(engine, "s.jsonl"))["annotations"] == expected
    [message] = MemorySink.delivered("s")
    [posted] = json.loads(webhook_body(message))["data"]["items"]
    assert posted["annotations"] == expected

    [entry] = json.loads(read_out(engine, "s.json"))["items"]
    assert entry["_runnel"]["annotations"]["photos"] == {
        "items": [
            {
                "feed": "Photos",
                "item": "p1",
                "version": 1,
                "title": "Muse on stage",
                "url": "https://photos.example/1",
                "attachments": [{"url": "https://photos.example/1.jpg", "mime_type": "image/jpeg"}],
            }
        ],
        "count": 1,
    }
    for name, problems in (("s.xml", rss_problems), ("s.atom", atom_problems)):
        data = read_out(engine, name)
        assert problems(data) == []
        parsed = feedparser.parse(data)
        assert (parsed.bozo, [entry.title for entry in parsed.entries]) == (False, ["Muse tonight"])
        assert parsed.entries[0].link == "https://n.example/1", "the joined items are not part of the entry"
        [annotations] = etree.fromstring(data).iter(f"{OWN}annotations")
        assert dict(annotations.items()) == {"name": "photos", "count": "1"}
        [item] = annotations
        assert dict(item.items()) == {"feed": "Photos", "item": "p1", "version": "1"}
        assert item.findtext(f"{OWN}title") == "Muse on stage"
        assert item.findtext(f"{OWN}link") == "https://photos.example/1"
        enclosure = item.find(f"{OWN}enclosure")
        assert enclosure is not None
        assert dict(enclosure.items()) == {"url": "https://photos.example/1.jpg", "type": "image/jpeg"}
    assert json_feed_problems(read_out(engine, "s.json")) == []
    # A feed from a stylesheet keeps the identity of the item, and with it the annotations.
    [again] = etree.fromstring(read_out(engine, "same.xml")).iter(f"{OWN}annotations")
    assert [item.get("item") for item in again] == ["p1"]

    mail = render_mail(message)
    assert "photos:\n  Muse on stage\n  https://photos.example/1\n" in mail.text
    assert '<li><a href="https://photos.example/1">Muse on stage</a></li>' in (mail.html or "")


def test_stylesheet_for_mail_reads_annotations(
    engine: Engine, runner: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemorySink, "takes_content", True)
    engine.execute("subscribe to Shown apply 'html.xsl' output memory 's';")
    engine.publish("Photos", [PHOTO, HOSTILE])
    publish_news(engine)
    runner.run()
    [message] = MemorySink.delivered("s")
    html = render_mail(message).html or ""
    assert '<a href="https://photos.example/1" rel="noopener noreferrer">Muse on stage</a>' in html
    assert "javascript:" not in html
    assert "<script" not in html


def test_stylesheet_that_shows_joined_items_itself_replaces_annotations(engine: Engine, runner: InProcess) -> None:
    shutil.copy(EXAMPLE / "IncludePhotos.xsl", engine.workspace.folder / "sheets")
    engine.execute(
        "subscribe to Shown apply 'IncludePhotos.xsl' output memory 'shown';"
        "subscribe to Shown apply 'same.xsl' output memory 'same';"
    )
    engine.publish("Photos", [PHOTO])
    publish_news(engine)
    runner.run()
    assert joined("same") == [("n1", ["p1"], 1)]
    assert joined("shown") == []
    [message] = MemorySink.delivered("shown")
    mail = render_mail(message)
    assert mail.text.count("Muse on stage") == 1
    assert (mail.html or "").count("Muse on stage") == 1


def test_joined_items_of_strangers_cannot_harm_an_output(engine: Engine, runner: InProcess) -> None:
    engine.execute(
        "subscribe to Shown output json 's.json'; subscribe to Shown output rss 's.xml';"
        "subscribe to Shown output atom 's.atom'; subscribe to Shown output jsonl 's.jsonl';"
        "subscribe to Shown output memory 's';"
    )
    engine.publish(
        "Photos", [HOSTILE, {"id": "long", "title": "t" * 100_000, "link": "https://a.example/" + "x" * 3000}]
    )
    engine.publish("Photos", [{"id": "bare", "band": "Muse"}, {"id": "l2", "title": "w " * 50_000, "band": "Muse"}])
    publish_news(engine)
    runner.run()
    for name, problems in (("s.xml", rss_problems), ("s.atom", atom_problems), ("s.json", json_feed_problems)):
        data = read_out(engine, name)
        assert problems(data) == []
        assert b"javascript:" not in data
        assert b"<script" not in data
        assert b"onclick" not in data
    [annotations] = etree.fromstring(read_out(engine, "s.xml")).iter(f"{OWN}annotations")
    assert [item.get("item") for item in annotations] == ["l2", "bare", "p<2>"]
    assert [item.findtext(f"{OWN}title") for item in annotations][1:] == ["bare", "& ]]>"]
    [message] = MemorySink.delivered("s")
    mail = render_mail(message)
    assert "javascript:" not in mail.text + (mail.html or "")
    assert "<script" not in (mail.html or "")
    assert max(map(len, mail.text.splitlines())) <= 78
    assert [item["id"] for item in json.loads(read_out(engine, "s.jsonl"))["annotations"]["photos"]["items"]] == [
        "l2",
        "bare",
        "p\x01<2>",
    ]


def test_elements_of_annotations_do_not_become_attributes(engine: Engine, runner: InProcess) -> None:
    engine.execute("register feed Shown apply 'same.xsl' as Copies; subscribe to Copies output memory 'copies';")
    engine.publish("Photos", [PHOTO])
    publish_news(engine)
    runner.run()
    runner.run()
    [copy] = delivered("copies")
    assert copy.item.feed == "Copies"
    assert copy.item.attributes["title"] == ("Muse tonight",)
    assert [name for name in copy.item.attributes if name.startswith("runnel")] == []


def test_digest_has_the_annotations_of_the_time_of_each_match(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.execute("subscribe to Shown output memory 's' every 3 hours;")
    engine.publish("Photos", [PHOTO])
    publish_news(engine)
    runner.run()
    clock.advance(timedelta(hours=1))
    engine.publish("Photos", [{"id": "p2", "title": "Second", "band": "Muse"}])
    publish_news(engine, "n2")
    runner.run()
    assert delivered("s") == []
    clock.advance(timedelta(hours=2, minutes=1))
    runner.run()
    assert len(MemorySink.delivered("s")) == 1
    assert joined("s") == [("n1", ["p1"], 1), ("n2", ["p2", "p1"], 2)]


def test_past_items_are_annotated_when_a_subscription_starts_in_the_past(
    engine: Engine, runner: InProcess, clock: FakeClock
) -> None:
    engine.publish("Photos", [PHOTO])
    clock.advance(timedelta(days=2))
    publish_news(engine)
    clock.advance(timedelta(days=2))
    publish_news(engine, "too late")
    runner.match()
    engine.execute("subscribe to Shown output memory 's' from last 3 days;")
    runner.run()
    assert joined("s") == [("n1", ["p1"], 1)]


def test_replayed_dead_letter_has_its_annotations_after_the_window_has_expired(
    engine: Engine, runner: InProcess, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.execute("subscribe to Shown output memory 's';")
    refused: list[Delivery] = []

    def refuse(sink: MemorySink, delivery: Delivery) -> str:
        refused.append(delivery)
        raise DeliveryError("no", permanent=True)

    monkeypatch.setattr(MemorySink, "deliver", refuse)
    engine.publish("Photos", [PHOTO])
    publish_news(engine)
    runner.run()
    monkeypatch.undo()
    clock.advance(timedelta(days=20))
    engine.publish("Photos", [{"id": "p2", "title": "Later", "band": "Muse"}])
    runner.match()
    run_maintenance(engine.workspace, runner.epoch, at_least=2)
    [first] = refused
    engine.execute(f"replay message '{first.key}';")
    runner.restart_delivery()
    runner.deliver()
    [again] = MemorySink.delivered("s")
    assert [one.annotations for one in again.items] == [one.annotations for one in first.items]
    assert joined("s") == [("n1", ["p1"], 1)]


def test_joined_items_that_were_deleted_are_counted(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sink: MemorySink, delivery: Delivery) -> str:
        raise DeliveryError("no", permanent=True)

    with runnel.connect(tmp_path / "short", clock=clock, keep_items_days=2) as engine:
        engine.execute(SHOWN + "subscribe to Shown output memory 'kept';")
        runner = InProcess(engine)
        engine.publish("Photos", [PHOTO])
        runner.match()
        clock.advance(timedelta(days=1))
        engine.publish("Photos", [{"id": "p2", "title": "Second", "band": "Muse"}])
        publish_news(engine)
        with monkeypatch.context() as patch:
            patch.setattr(MemorySink, "deliver", refuse)
            runner.run()
        clock.advance(timedelta(days=1, hours=1))
        engine.publish("Photos", [{"id": "p3", "title": "Other", "band": "Blur"}])
        runner.match()
        run_maintenance(engine.workspace, runner.epoch)
        [dead] = engine.dead_letters()
        engine.execute(f"replay message '{dead.key}';")
        runner.restart_delivery()
        runner.run()
        runner.close()
        [matched] = engine.matches("Shown")
    assert joined("kept") == [("n1", ["p2"], 2)], "the first photo was deleted"
    assert [(one.count, [item.id for item in one.items]) for one in matched.annotations] == [(2, ["p2"])]


def test_message_with_large_joined_items_is_bounded(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Shown output memory 's'; subscribe to Shown output rss 's.xml';")
    for number in range(100):
        photo = {"id": f"p{number}", "title": f"Photo {number}", "band": "Muse", "content": f"{number} " * 250_000}
        engine.publish("Photos", [photo])
    engine.publish("News", [{"id": f"n{number}", "title": "Muse", "band": "Muse"} for number in range(3)])
    runner.run()
    [message] = MemorySink.delivered("s")
    assert [annotation.count for one in message.items for annotation in one.annotations] == [100, 100, 100]
    annotation: JoinedItems
    [annotation] = message.items[0].annotations
    assert [item.id for item in annotation.items] == [f"p{number}" for number in reversed(range(100))]
    assert dict(annotation.items[0].attributes) == {"title": ("Photo 99",), "band": ("Muse",)}
    assert {annotation.omitted_from(item) for item in annotation.items} == {1}
    body = webhook_body(message)
    assert len(body) < 4 << 20
    assert json.loads(body)["data"]["items"][0]["annotations"]["photos"]["items"][0]["omitted"] == 1
    assert len(rss_document(message)) < 4 << 20
    [first, *_] = etree.fromstring(read_out(engine, "s.xml")).iter(f"{OWN}annotations")
    assert first.get("count") == "100"
    assert [item.get("omitted") for item in first] == ["1"] * 20


def test_message_of_many_items_with_many_joined_items_is_bounded(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Shown output memory 's';")
    engine.publish("Photos", [{"id": f"p{number}", "title": "p" * 200, "band": "Muse"} for number in range(120)])
    engine.publish("News", [{"id": f"n{number}", "title": "Muse", "band": "Muse"} for number in range(600)])
    runner.run()
    messages = MemorySink.delivered("s")
    assert sum(len(message.items) for message in messages) == 600
    for message in messages:
        assert len(webhook_body(message)) < 4 << 20
        shown = {len(annotation.items) for one in message.items for annotation in one.annotations}
        assert len(shown) == 1, "the items of a message share its space equally"
        assert 0 < min(shown) < 100
        assert {annotation.count for one in message.items for annotation in one.annotations} == {120}


def test_annotation_with_many_items_fits_whole_if_they_are_small(engine: Engine, runner: InProcess) -> None:
    engine.execute("subscribe to Shown output memory 's';")
    engine.publish("Photos", [{"id": f"p{number}", "title": "p" * 200, "band": "Muse"} for number in range(120)])
    publish_news(engine)
    runner.run()
    [(_, ids, count)] = joined("s")
    assert (len(ids), ids[0], count) == (100, "p119", 120)
    [one] = delivered("s")
    assert dict(one.annotations[0].omitted) == {}
    [matched] = engine.matches("Shown")
    assert matched.annotations == one.annotations


def test_example_of_the_paper_includes_photos_in_news(engine: Engine, runner: InProcess) -> None:
    shutil.copy(EXAMPLE / "IncludePhotos.xsl", engine.workspace.folder / "sheets")
    engine.execute((EXAMPLE / "feeds.runnel").read_text("utf-8"))
    for name in ("photos.jsonl", "news.jsonl"):
        for line in (EXAMPLE / name).read_text("utf-8").splitlines():
            item = json.loads(line)
            engine.publish(item.pop("feed"), [item])
    runner.run()
    runner.run()
    lines = [json.loads(line) for line in read_out(engine, "muse.jsonl").splitlines()]
    assert [(line["id"], [photo["id"] for photo in line["annotations"]["join1"]["items"]]) for line in lines] == [
        ("n1", ["f1", "m1"]),
        ("n3", ["f1", "m1"]),
    ], "the photo of the category pop is not in the window, and n4 is not about Muse"
    data = read_out(engine, "muse.xml")
    assert rss_problems(data) == []
    texts = {
        item.findtext("title"): item.findtext("description") or "" for item in etree.fromstring(data).iter("item")
    }
    assert list(texts) == ["Live in Paris", "Muse live in Paris tonight"]
    assert texts["Muse live in Paris tonight"] == (
        'Doors open at eight.<p><a href="https://photos.example/f1" rel="noopener noreferrer">Live in Paris</a></p>'
        '<p><a href="https://photos.example/m1" rel="noopener noreferrer">'
        'Muse live in Paris<br><img src="https://photos.example/m1.jpg"></a></p>'
    )


@pytest.mark.parametrize(
    ("news", "text"),
    [
        ({}, ""),
        ({"description:html": "<p>Short.</p>", "content:html": "<p>Long.</p>"}, "<p>Long.</p>"),
        ({"description": "1 < 2"}, "1 &lt; 2"),
    ],
)
def test_photos_are_added_to_the_longest_text_with_their_titles_escaped(
    engine: Engine, runner: InProcess, news: dict[str, str], text: str
) -> None:
    shutil.copy(EXAMPLE / "IncludePhotos.xsl", engine.workspace.folder / "sheets")
    engine.execute("subscribe to Shown apply 'IncludePhotos.xsl' output rss 's.xml';")
    title = 'R&B " onload="x()" 1<2 <Roll>'
    engine.publish("Photos", [PHOTO | {"title": title}, {"id": "p2", "title": title, "band": "Muse"}])
    engine.publish("News", [{"id": "n1", "title": "Muse", "band": "Muse", **news}])
    runner.run()
    [item] = etree.fromstring(read_out(engine, "s.xml")).iter("item")
    shown = item.findtext("{http://purl.org/rss/1.0/modules/content/}encoded") or item.findtext("description")
    assert shown == (
        f'{text}<p>R&amp;B " onload="x()" 1&lt;2 &lt;Roll&gt;</p>'
        '<p><a href="https://photos.example/1" rel="noopener noreferrer">'
        'R&amp;B " onload="x()" 1&lt;2 &lt;Roll&gt;<br><img src="https://photos.example/1.jpg"></a></p>'
    )
