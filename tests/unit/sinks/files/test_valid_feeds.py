"""Every feed file is valid by the rules of its format, whatever its items hold and whoever wrote it before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.integration.in_process import InProcess
from tests.unit.sinks.files.feed_rules import ATOM, atom_problems, json_feed_problems, rss_problems

import runnel
from runnel.errors import WorkspaceError
from runnel.model.annotation import JoinedItems
from runnel.model.item import Item, attributes_of
from runnel.model.subscription import Subscription
from runnel.sinks.contract import DeliveredItem, Delivery
from runnel.sinks.files.feed_entries import entry_id
from runnel.sinks.files.feed_file import AtomFile, JsonFeedFile, RssFile
from runnel.sinks.files.render_rss import rss_document
from runnel.sinks.files.valid_texts import feed_id, web_address
from runnel.sources.documents.adapt import adapt
from runnel.sources.documents.decode import decode
from runnel.testing.world import World

SENT = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
CHECKED: list[tuple[RssFile | AtomFile | JsonFeedFile, Callable[[bytes], list[str]]]] = [
    (RssFile(), rss_problems),
    (AtomFile(), atom_problems),
    (JsonFeedFile(), json_feed_problems),
]
Check = Callable[[bytes], list[str]]
FeedSink = RssFile | AtomFile | JsonFeedFile

_NASTY = st.sampled_from(
    [
        "<b>Rock</b>",
        "R&amp;B",
        "&lt;b&gt;",
        "</p>",
        "AT&T",
        "1 < 2 > 0",
        "<Roll>",
        "&#x41;",
        "&#1;",
        "<script>x()</script>",
        "\x93quoted\x94",
        "\ufffd",
        "\x00",
        "\x7f",
        "é",
        "東京",
        "]]>",
        "&amp;lt;i&amp;gt;",
        "<br/>",
        "<a href='x'>",
        "\u2028",
        "&eacute;",
        "&unknown;",
        "<!-- c -->",
        "<?x?>",
        "😀",
        "\ufdd0",
        " ",
        "<B CLASS=x>",
    ]
)
_TEXTS = st.one_of(
    st.lists(_NASTY, max_size=4).map("".join), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
_LINKS = st.one_of(
    st.lists(
        st.sampled_from(
            ["/käse", "?q=ä", "#é", "%", "%zz", "%C3%A9", "|", "{x}", "\\", "^", "`", '"', "<", "[1]", "東"]
        ),
        max_size=5,
    ).map(lambda parts: "https://a.example/" + "".join(parts)),
    st.sampled_from(
        [
            "https://münchen.example/",
            "http://[::1]:80/x",
            "https://-.example/",
            "http://a_b.example",
            "https://a.example:99999/",
            "javascript:x",
            "urn:x:y",
            "/relative",
            "https://user:pä@a.example/",
            "https://a.example:/",
            "http://ﬀ.example/",
            "http://",
        ]
    ),
    _TEXTS,
)
_ITEM = st.fixed_dictionaries(
    {"id": st.text(min_size=1, max_size=8)},
    optional={
        "title": _TEXTS,
        "description": _TEXTS,
        "content": _TEXTS,
        "description:html": _TEXTS,
        "content:html": st.one_of(_TEXTS, st.just("<p>x<a href='/y'>z</a><img src=q></p>")),
        "link": _LINKS,
        "enclosure": _LINKS,
        "enclosure:type": st.sampled_from(["audio/mpeg", "music", "a/b; c=d", "a b/c", "é/x"]),
        "author": _TEXTS,
        "category": _TEXTS,
        "language": st.sampled_from(["de", "en-GB", "deutsch", "xx", "de_CH", "", "zh-Hant-TW", "gsw"]),
        "published": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
        "updated": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
    },
)


def _delivery(sink: FeedSink, out: Path, items: list[Item], **changed: Any) -> Delivery:
    subscription = Subscription(1, 2, sink.kind, f"höt/{sink.kind}.xml", 0, SENT)
    delivered = [DeliveredItem(item, changed.pop("source", "The <b>News</b>")) for item in items]
    made = Delivery("k", subscription, "Rock", "Rock & <i>Roll</i>", delivered, SENT, out)
    return replace(made, **changed)


def _written(sink: FeedSink, out: Path) -> bytes:
    return (out / "höt" / f"{sink.kind}.xml").read_bytes()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(_ITEM, max_size=4, unique_by=lambda raw: raw["id"]),
    st.sampled_from(["", "https://news.example/feeds/"]),
    _TEXTS.filter(str.strip),
)
def test_feeds_of_hostile_items_are_valid(
    tmp_path_factory: pytest.TempPathFactory, raws: list[dict[str, Any]], out_url: str, name: str
) -> None:
    out = tmp_path_factory.mktemp("out")
    items = [
        Item(
            "F", raw["id"], attributes_of({key: value for key, value in raw.items() if key != "id"}), 1, number, SENT
        )
        for number, raw in enumerate(raws, start=1)
    ]
    for sink, problems in CHECKED:
        delivery = _delivery(sink, out, items, out_url=out_url, feed_name=name, feed_title=name)
        joined = (JoinedItems(name, tuple(items), len(items) + 7, {1: 2}),)
        delivery = replace(delivery, items=[replace(each, annotations=joined) for each in delivery.items])
        sink.deliver(delivery)
        assert problems(_written(sink, out)) == []
        assert sink.deliver(delivery) == "nothing new"
    assert rss_problems(rss_document(delivery)) == []


DATA = Path(__file__).parents[3] / "data"


@pytest.mark.parametrize(("sink", "problems"), CHECKED, ids=["rss", "atom", "json"])
def test_feeds_of_generated_news_are_valid(sink: FeedSink, problems: Check, tmp_path: Path) -> None:
    world = World.generate(feeds=5, items=300, queries=0)
    items = [replace(item, sequence=number) for number, item in enumerate(world.model_items(), start=1)]
    sink.deliver(_delivery(sink, tmp_path, items))
    assert problems(_written(sink, tmp_path)) == []


@pytest.mark.parametrize(("sink", "problems"), CHECKED, ids=["rss", "atom", "json"])
@pytest.mark.parametrize("name", ["atom_0.3.xml", "atom_1.0.xml", "feed_1.1.json", "rss_0.91.xml", "rss_2.0.xml"])
def test_feeds_of_real_documents_are_valid(sink: FeedSink, problems: Check, name: str, tmp_path: Path) -> None:
    results = adapt(decode((DATA / name).read_bytes(), name), "News").items
    assert results
    items = [replace(item, sequence=number) for number, item in enumerate(results, start=1)]
    sink.deliver(_delivery(sink, tmp_path, items))
    assert problems(_written(sink, tmp_path)) == []


def test_feed_has_a_self_link_if_its_url_is_known(make_item: Any, tmp_path: Path) -> None:
    for sink, _ in CHECKED:
        sink.deliver(_delivery(sink, tmp_path, [make_item("a", 1)], out_url="https://news.example/feeds/"))
    rss, atom = (etree.fromstring(_written(sink, tmp_path)) for sink, _ in CHECKED[:2])
    assert [link.get("href") for link in rss.iterfind(f"channel/{ATOM}link[@rel='self']")] == [
        "https://news.example/feeds/h%C3%B6t/rss.xml"
    ]
    assert rss.findtext("channel/link") == "https://news.example/feeds/h%C3%B6t/rss.xml"
    address = "https://news.example/feeds/h%C3%B6t/atom.xml"
    assert atom.findtext(f"{ATOM}id") == address
    assert [link.get("href") for link in atom.iterfind(f"{ATOM}link[@rel='self']")] == [address]
    assert b'"feed_url": "https://news.example/feeds/h%C3%B6t/json.xml"' in _written(CHECKED[2][0], tmp_path)


def test_feed_without_url_has_a_stable_valid_id(make_item: Any, tmp_path: Path) -> None:
    sink = AtomFile()
    sink.deliver(_delivery(sink, tmp_path, [make_item("a", 1)]))
    atom = etree.fromstring(_written(sink, tmp_path))
    assert atom.findtext(f"{ATOM}id") == feed_id("Rock") == "urn:uuid:" + feed_id("Rock").removeprefix("urn:uuid:")
    assert atom.find(f"{ATOM}link") is None


def test_titles_are_encoded_without_changing_their_meaning(make_item: Any, tmp_path: Path) -> None:
    titles = ["How to close a </div>", "R&amp;B", "Rock & <Roll>", "<b>Live</b> &amp;amp; loud"]
    items = [make_item(str(n), n, title=title) for n, title in enumerate(titles, start=1)]
    for sink in (RssFile(), AtomFile()):
        sink.deliver(_delivery(sink, tmp_path, items))
    rss, atom = (etree.fromstring(_written(sink, tmp_path)) for sink in (RssFile(), AtomFile()))
    assert [node.text for node in rss.iterfind("channel/item/title")][::-1] == [
        "How to close a",
        "R&B",
        "Rock & <Roll>",
        "Live & loud",
    ]
    shown = [(node.get("type"), node.text) for node in atom.iterfind(f"{ATOM}entry/{ATOM}title")][::-1]
    assert shown == [
        ("html", "How to close a &lt;/div&gt;"),
        ("html", "R&amp;amp;B"),
        ("text", "Rock & <Roll>"),
        ("html", "&lt;b&gt;Live&lt;/b&gt; &amp;amp;amp; loud"),
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://a.example/käse und", None),
        ("https://a.example/käse?x=1&y=ü#é", "https://a.example/k%C3%A4se?x=1&y=%C3%BC#%C3%A9"),
        ("https://a.example/100%", "https://a.example/100%25"),
        ("https://a.example/%C3%A4|{}", "https://a.example/%C3%A4%7C%7B%7D"),
        ("https://MÜNCHEN.example", "https://xn--mnchen-3ya.example"),
        ("http://[::1]:8080/a", "http://[::1]:8080/a"),
        ("https://a.example/1?x=1&y=2", "https://a.example/1?x=1&y=2"),
        ("https://a.example:99999/", None),
        ("ftp://a.example/", None),
    ],
)
def test_urls_become_ascii(text: str, address: str | None) -> None:
    assert web_address(text) == address


OLD_RSS = """<rss xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:runnel="urn:runnel:feed/1" version="2.0"><channel><title>Rock</title><link>urn:runnel:feed:Rock</link>
 <description>d</description>
 <lastBuildDate>Sun, 15 Nov 2026 09:30:00 +0000</lastBuildDate><generator>Runnel</generator>
 <item><title>&lt;b&gt;Old&lt;/b&gt;</title><link>https://a.example/käse</link>
 <guid isPermaLink="false">{id}</guid><category>rock</category><dc:language>deutsch</dc:language>
 <runnel:entry feed="News" item="old" version="1" sequence="1"/>
 <runnel:bindings><runnel:row><runnel:binding name="x" type="number">1</runnel:binding></runnel:row></runnel:bindings>
 </item></channel></rss>"""
OLD_ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xmlns:runnel="urn:runnel:feed/1"><id>urn:runnel:feed:Rock</id>
 <title type="text">Rock</title><updated>2026-11-15T09:30:00+00:00</updated><generator>Runnel</generator>
 <entry><id>{id}</id><title type="text">&lt;b&gt;Old&lt;/b&gt;</title><updated>2026-11-15T09:30:00+00:00</updated>
 <author><name>News</name></author><runnel:entry feed="News" item="old" version="1" sequence="1"/></entry></feed>"""
OLD_JSON = """{{"version": "https://jsonfeed.org/version/1.1", "title": "Rock", "_runnel": {{"generator": "Runnel"}},
 "items": [{{"id": "{id}", "url": "https://a.example/käse", "title": "Old", "content_html": "", "language": "deutsch",
 "_runnel": {{"feed": "News", "item": "old", "version": 1, "sequence": 1}}}}]}}"""


@pytest.mark.parametrize(
    ("sink", "problems", "old"),
    [(*checked, old) for checked, old in zip(CHECKED, (OLD_RSS, OLD_ATOM, OLD_JSON), strict=True)],
    ids=["rss", "atom", "json"],
)
def test_files_of_earlier_releases_are_continued_and_become_valid(
    sink: FeedSink, problems: Check, old: str, make_item: Any, tmp_path: Path
) -> None:
    """Readers must not see old entries as new ones: their ids stay."""
    path = tmp_path / "höt" / f"{sink.kind}.xml"
    path.parent.mkdir()
    identifier = entry_id(make_item("old", 1))
    path.write_text(old.format(id=identifier))
    assert problems(path.read_bytes()) != []
    assert sink.deliver(_delivery(sink, tmp_path, [make_item("old", 1)])) == "nothing new"
    outcome = sink.deliver(_delivery(sink, tmp_path, [make_item("new", 2)]))
    assert outcome.startswith("1 new of 2 entries"), outcome
    data = path.read_bytes()
    assert problems(data) == []
    assert identifier.encode() in data
    assert b"urn:runnel:feed/1" not in data


def test_url_of_the_out_folder_comes_from_the_settings(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root", out_url="https://news.example/feeds") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output rss 'music/rock.xml'; subscribe to Rock output atom 'rock.atom';")
        runner = InProcess(engine)
        engine.publish("Wire", [{"id": "1", "title": "<b>rock</b> & roll", "link": "https://a.example/käse"}])
        runner.run()
        runner.close()
        rss, atom = (engine.workspace.out / name for name in ("music/rock.xml", "rock.atom"))
        assert rss_problems(rss.read_bytes()) == atom_problems(atom.read_bytes()) == []
        assert b'rel="self" href="https://news.example/feeds/music/rock.xml"' in rss.read_bytes()
        assert b"<id>https://news.example/feeds/rock.atom</id>" in atom.read_bytes()


def test_invalid_out_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="out_url"):
        runnel.connect(tmp_path / "root", out_url="news.example/feeds")
