"""Feed files: always valid, never torn, the same after the same message."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import feedparser
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import etree

from runnel.errors import DeliveryError, StorageFullError
from runnel.model.item import Item, attributes_of
from runnel.model.subscription import Subscription
from runnel.sinks.contract import DeliveredItem, Delivery
from runnel.sinks.files import feed_file
from runnel.sinks.files.feed_entries import entry_id, merge, show
from runnel.sinks.files.feed_file import AtomFile, JsonFeedFile, RssFile
from runnel.sinks.files.valid_texts import plain_text
from runnel.sources.documents.adapt import adapt
from runnel.sources.documents.decode import decode

Make = Callable[..., Any]
SINKS = [RssFile(), AtomFile(), JsonFeedFile()]
SENT = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
every_format = pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.kind)


def shown(path: Path) -> list[tuple[str, str]]:
    """(id, title) of the entries, read by somebody else's parser."""
    if path.read_bytes().startswith(b"{"):
        return [(item["id"], item["title"]) for item in json.loads(path.read_bytes())["items"]]
    parsed = feedparser.parse(path.read_bytes())
    assert not parsed.bozo
    return [(entry.id, entry.title) for entry in parsed.entries]


@every_format
def test_entries_are_added_newest_first_and_bounded(
    sink: RssFile, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    path = tmp_path / "out" / "news" / "rock"
    outcome = sink.deliver(make_delivery("news/rock", make_item("a", 1), make_item("b", 2), most=3))
    assert outcome.startswith("2 new of 2 entries")
    sink.deliver(make_delivery("news/rock", make_item("c", 3), make_item("d", 4), key="m2", most=3))
    assert [title for _, title in shown(path)] == ["Title d", "Title c", "Title b"]
    assert [value.name for value in path.parent.iterdir()] == ["rock"]


@every_format
def test_repeated_message_changes_nothing(
    sink: RssFile, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    delivery = make_delivery("rock", *(make_item(str(n), n) for n in range(1, 6)), most=3)
    sink.deliver(delivery)
    before = (tmp_path / "out" / "rock").stat()
    assert sink.deliver(delivery) == "nothing new"
    after = (tmp_path / "out" / "rock").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@every_format
def test_newer_version_replaces_the_entry_and_older_version_does_not(
    sink: RssFile, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    path = tmp_path / "out" / "rock"
    sink.deliver(make_delivery("rock", make_item("a", 1), make_item("b", 2)))
    sink.deliver(make_delivery("rock", make_item("a", 3, 2, title="Edited"), key="m2"))
    ids = shown(path)
    assert [title for _, title in ids] == ["Edited", "Title b"]
    assert sink.deliver(make_delivery("rock", make_item("a", 1), key="m3")) == "nothing new"
    assert shown(path) == ids


@every_format
def test_empty_message_creates_a_valid_empty_feed(sink: RssFile, make_delivery: Make, tmp_path: Path) -> None:
    sink.deliver(make_delivery("rock"))
    assert shown(tmp_path / "out" / "rock") == []
    assert sink.deliver(make_delivery("rock")) == "nothing new"


@every_format
@pytest.mark.parametrize(
    "foreign",
    [b"", b"my notes", b"<rss version='2.0'><channel><item/></channel></rss>", b'{"items": []}', b"[" * 5000,
     b"\xff\0", b"<!DOCTYPE rss [<!ENTITY a 'b'>]><rss><channel><generator>Runnel</generator></channel></rss>"],
)  # fmt: skip
def test_file_not_written_by_runnel_is_renamed(
    sink: RssFile, foreign: bytes, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    path = tmp_path / "out" / "rock"
    path.parent.mkdir()
    (path.parent / "rock.foreign-1").write_text("an earlier one")
    path.write_bytes(foreign)
    outcome = sink.deliver(make_delivery("rock", make_item("a", 1)))
    assert "rock.foreign-2" in outcome
    assert (path.parent / "rock.foreign-1").read_text() == "an earlier one"
    assert (path.parent / "rock.foreign-2").read_bytes() == foreign
    assert [title for _, title in shown(path)] == ["Title a"]


@every_format
@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFullError), (errno.EIO, DeliveryError)])
def test_failure_at_any_step_leaves_the_old_file_intact(
    sink: RssFile,
    step: str,
    number: int,
    error: type[Exception],
    make_item: Make,
    make_delivery: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "out" / "rock"
    sink.deliver(make_delivery("rock", make_item("a", 1)))
    old = path.read_bytes()
    with monkeypatch.context() as patch:

        def fail(*_: object, **__: object) -> int:
            raise OSError(number, os.strerror(number))

        patch.setattr(os, step, fail)
        with pytest.raises(error):
            sink.deliver(make_delivery("rock", make_item("b", 2), key="m2"))
    assert path.read_bytes() == old
    assert [value.name for value in path.parent.iterdir()] == ["rock"]
    sink.deliver(make_delivery("rock", make_item("b", 2), key="m2"))
    assert [title for _, title in shown(path)] == ["Title b", "Title a"]


@every_format
def test_kill_before_the_rename_leaves_the_old_file_intact(
    sink: RssFile, make_item: Make, make_delivery: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    path = tmp_path / "out" / "rock"
    sink.deliver(make_delivery("rock", make_item("a", 1)))
    old = path.read_bytes()
    with monkeypatch.context() as patch:

        def kill(*_: object, **__: object) -> None:
            raise Killed

        patch.setattr(os, "rename", kill)
        with pytest.raises(Killed):
            sink.deliver(make_delivery("rock", make_item("b", 2), key="m2"))
    assert path.read_bytes() == old
    sink.deliver(make_delivery("rock", make_item("b", 2), key="m2"))
    assert [title for _, title in shown(path)] == ["Title b", "Title a"]
    assert [value.name for value in path.parent.iterdir()] == ["rock"]


def test_rss_entries_parse_to_the_expected_fields(make_item: Make, make_delivery: Make, tmp_path: Path) -> None:
    item = make_item(
        "a",
        1,
        title="Rock \x01& <Roll> ]]>",
        link="https://a.example/1?x=1&y=2",
        published=datetime(2026, 11, 14, tzinfo=UTC),
        author="Ann",
        category="rock",
        description="1 < 2\nnext",
        **{"content:html": "<p>Hi<script>x()</script></p><img src=x onerror=y()>"},
    )
    RssFile().deliver(make_delivery("a.xml", item))
    parsed = feedparser.parse((tmp_path / "out" / "a.xml").read_bytes())
    assert (parsed.bozo, parsed.version, parsed.feed.title) == (False, "rss20", "Rock & Concerts")
    assert parsed.feed.generator == "Runnel"
    (entry,) = parsed.entries
    assert entry.link == "https://a.example/1?x=1&y=2"
    assert entry.id == entry_id(item)
    assert not entry.guidislink
    assert entry.published_parsed[:3] == (2026, 11, 14)
    assert (entry.author, entry.tags[0].term) == ("Ann", "rock")
    raw = etree.fromstring((tmp_path / "out" / "a.xml").read_bytes())
    assert raw.findtext("channel/item/title") == "Rock & <Roll> ]]>"
    assert raw.findtext("channel/item/description") == "1 &lt; 2<br>\nnext"
    assert "script" not in str(raw.findtext("channel/item/{*}encoded"))
    assert "onerror" not in str(raw.findtext("channel/item/{*}encoded"))


@every_format
def test_written_feeds_can_be_decoded_again(
    sink: RssFile, make_item: Make, make_delivery: Make, tmp_path: Path
) -> None:
    item = make_item(
        "a",
        1,
        title="Rock & <Roll>" if sink.kind != "rss" else "Rock & Roll",
        link="https://a.example/1",
        published=datetime(2026, 11, 14, tzinfo=UTC),
        author="Ann",
        category="rock",
        description="1 < 2",
        content="some text",
        enclosure="https://a.example/1.mp3",
        **{"content:html": "<p>some <b>text</b></p>", "enclosure:type": "audio/mpeg"},
    )
    sink.deliver(make_delivery("a", item))
    read = adapt(decode((tmp_path / "out" / "a").read_bytes(), "a"), "Again")
    assert (read.title, read.problems) == ("Rock & Concerts", [])
    (again,) = read.items
    assert again.id == entry_id(item)
    for name in ("title", "link", "published", "author", "category", "content", "content:html", "enclosure"):
        assert again.attributes[name] == item.attributes[name], name


@pytest.mark.parametrize("link", ["javascript:alert(1)", "http://", "http://[x", "relative", "https://a b/"])
def test_only_http_links_are_written(link: str, make_item: Make) -> None:
    assert show(DeliveredItem(make_item("a", 1, link=link), "F"), SENT).link is None


def test_deeply_nested_html_becomes_text(make_item: Make) -> None:
    item = make_item("a", 1, description="short", **{"description:html": "<div>" * 100_000})
    assert show(DeliveredItem(item, "F"), SENT).summary == "short"


def test_file_with_huge_items_can_be_read_again(
    make_item: Make, make_delivery: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_file, "MAX_FILE", 3_000_000)
    huge = [make_item(str(n), n, description="\n" * 10 + "<&\n" * 80_000) for n in range(1, 8)]
    for sink in SINKS:
        sink.deliver(make_delivery(sink.kind, *huge))
        assert "foreign" not in sink.deliver(make_delivery(sink.kind, make_item("z", 99), key="m2"))


def test_merge_does_not_depend_on_order(make_item: Make) -> None:
    entries = [
        RssFile._format.entry(show(DeliveredItem(make_item(str(n % 4), n, n), "F"), SENT)) for n in range(1, 12)
    ]
    forth, back = merge([], entries, 3), merge(entries[5:], reversed(entries[:5]), 3)
    assert [(e.id, e.version) for e in forth] == [(e.id, e.version) for e in back]
    assert [e.version for e in forth] == [11, 10, 9]


def test_concurrent_writers_lose_no_entries(make_item: Make, make_delivery: Make, tmp_path: Path) -> None:
    def write(start: int) -> None:
        for n in range(start, start + 5):
            AtomFile().deliver(make_delivery("shared", make_item(str(n), n), key=f"m{n}"))

    threads = [threading.Thread(target=write, args=(start,)) for start in (1, 11, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(shown(tmp_path / "out" / "shared")) == 15


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXTS.filter(lambda text: bool(text.strip())),
            "title": TEXTS,
            "description": TEXTS,
            "category": TEXTS,
        },
        optional={
            "published": st.datetimes(datetime(1970, 1, 2), datetime(2099, 1, 1), timezones=st.just(UTC)),
            "link": TEXTS.map(lambda text: f"https://a.example/{text}"),
            "author": TEXTS,
            "content:html": TEXTS.map(lambda text: f"<p>{text}</p>"),
            "language": TEXTS,
        },
    ),
    max_size=5,
    unique_by=lambda raw: raw["id"],
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ITEMS)
@example([{"id": "0", "title": "&QUOT;<b>", "description": "", "category": ""}])
def test_any_items_render_to_feeds_that_feedparser_reads(
    tmp_path_factory: pytest.TempPathFactory, raws: list[Any]
) -> None:
    out = tmp_path_factory.mktemp("out")
    items = [
        Item("F", raw["id"], attributes_of({k: v for k, v in raw.items() if k != "id"}), 1, number, SENT)
        for number, raw in enumerate(raws, start=1)
    ]
    expected = [entry_id(item) for item in reversed(items)]
    titles = [show(DeliveredItem(item, "F"), SENT).title for item in reversed(items)]
    for sink in SINKS:
        subscription = Subscription(1, 2, sink.kind, sink.kind, 0, SENT)
        delivery = Delivery("k", subscription, "V", "V", [DeliveredItem(item, "F") for item in items], SENT, out)
        sink.deliver(delivery)
        data = (out / sink.kind).read_bytes()
        assert sink.deliver(delivery) == "nothing new"
        if sink.kind == "json":
            assert [(value["id"], value["title"]) for value in json.loads(data)["items"]] == list(
                zip(expected, titles, strict=True)
            )
            continue
        parsed = feedparser.parse(data)
        assert not parsed.bozo
        assert [entry.id for entry in parsed.entries] == expected
        entries = etree.fromstring(data).iterfind(".//{*}item" if sink.kind == "rss" else "{*}entry")
        nodes = [title for entry in entries for title in entry.iterfind("{*}title")]
        if sink.kind == "rss":  # which cannot declare markup in titles
            ids = [item.id for item in reversed(items)]
            texts = [plain_text(title) or plain_text(own) for title, own in zip(titles, ids, strict=True)]
            assert [node.text for node in nodes] == [text or "(untitled)" for text in texts]
        else:
            assert [
                unescape(node.text or "") if node.get("type") == "html" else node.text for node in nodes
            ] == titles
