"""Feeds with errors are repaired or parsed by feedparser, and get a note. Hostile documents are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import BrokenDocumentError
from runnel.sandbox.pool import SandboxPool
from runnel.sources.documents import decode_tolerant
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.decode import decode
from runnel.sources.documents.repair_xml import repair_xml
from runnel.sources.documents.wire import DocumentKind

ITEM = "<item><guid>1</guid><title>One</title><link>https://muse.example/1</link></item>"


def read(text: str | bytes, charset: str | None = None) -> AdaptedFeed:
    data = text.encode() if isinstance(text, str) else text
    return adapt(decode(data, "a.xml", charset=charset), "F")


def rss(inner: str) -> str:
    return f"<rss version='2.0'><channel><title>T</title>{inner}</channel></rss>"


@pytest.fixture
def no_feedparser(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*command: Any, **options: Any) -> None:
        raise AssertionError("feedparser was used")

    monkeypatch.setattr(decode_tolerant, "_parse", fail)


@pytest.mark.parametrize(
    ("broken", "title"),
    [
        ("<title>Q&A</title>", "Q&A"),
        ("<title>AT&T &nosuch; &amp; co</title>", "AT&T &nosuch; & co"),
        ("<title>Rock &#X26; Roll</title>", "Rock & Roll"),
        ("<title>a\x01b\x00c</title>", "abc"),
        ("<title>a&#1;b&#xFFFF;c</title>", "abc"),
        ("<title>1 < 2</title>", "1 < 2"),
        ("<title>ok</title><itunes:author>Ann</itunes:author>", "ok"),
        ("<title>ok</title><odd:thing>x</odd:thing>", "ok"),
        ("<title><![CDATA[Q&A \x02 <b>]]></title>", "Q&A"),
    ],
)
@pytest.mark.usefixtures("no_feedparser")
def test_common_errors_are_repaired_without_feedparser(broken: str, title: str) -> None:
    feed = read(rss(f"<item><guid>1</guid>{broken}</item>"))
    assert [(item.id, item.first("title")) for item in feed.items] == [("1", title)]
    assert (feed.note or "").startswith("read tolerantly: a.xml:1:")


@pytest.mark.usefixtures("no_feedparser")
def test_undeclared_prefixes_get_their_usual_namespaces() -> None:
    feed = read(rss("<item><guid>1</guid><dc:creator>Ann</dc:creator><odd:thing>x</odd:thing></item>"))
    assert feed.items[0].attributes["author"] == ("Ann",)
    assert feed.items[0].attributes["odd:thing"] == ("x",)


@pytest.mark.parametrize(
    "text",
    [
        "<br />\n<b>Warning</b>: no cache\n" + rss(ITEM),
        "Notice: something\n<?xml version='1.0'?>" + rss(ITEM),
        "<?xml version='1.0'?>\n<?xml version='1.0'?>" + rss(ITEM),
        rss(ITEM) + "<script>count()</script>",
        rss(ITEM) + "\nServed in 3 ms",
        rss(ITEM)[:-1],
    ],
)
@pytest.mark.usefixtures("no_feedparser")
def test_text_around_a_feed_is_removed(text: str) -> None:
    feed = read(text)
    assert [item.id for item in feed.items] == ["1"]
    assert feed.note is not None


def test_valid_feed_has_no_note() -> None:
    assert read(rss(ITEM)).note is None


@pytest.mark.parametrize("root", ["rss", "atom", "rdf"])
@pytest.mark.usefixtures("no_feedparser")
def test_only_complete_entries_of_a_truncated_document_are_read(root: str) -> None:
    head, item, tail = {
        "rss": ("<rss><channel><title>T</title>", "<item><guid>{}</guid><title>t</title></item>", "</channel></rss>"),
        "atom": ("<feed xmlns='http://www.w3.org/2005/Atom'>", "<entry><id>{}</id></entry>", "</feed>"),
        "rdf": (
            "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#' xmlns='http://purl.org/rss/1.0/'>"
            "<channel><title>T</title></channel>",
            "<item rdf:about='{}'><title>t</title></item>",
            "</rdf:RDF>",
        ),
    }[root]
    entries = [item.format(f"id-{number}") for number in range(4)]
    text = head + "".join(entries) + tail
    for length in range(len(head) + len(entries[0]), len(text) - 1):
        whole = sum(length >= len(head) + sum(map(len, entries[: number + 1])) for number in range(4))
        assert {item.id for item in read(text[:length]).items} == {f"id-{number}" for number in range(whole)}


@pytest.mark.usefixtures("no_feedparser")
def test_document_truncated_in_its_first_entry_is_rejected_with_the_original_error() -> None:
    with pytest.raises(BrokenDocumentError, match="not well-formed XML"):
        read("<rss><channel><item><title>Half")


def test_document_with_mismatched_tags_is_parsed_by_feedparser() -> None:
    feed = read(
        rss(
            "<item><title>One <b>bold</i></title><guid isPermaLink='false'>g1</guid>"
            "<link>https://muse.example/1</link><description>&lt;p onclick='x()'>Text&lt;/p></description>"
            "<pubDate>Sun, 15 Nov 2026 09:30:00 GMT</pubDate>"
            "<category>rock</category><enclosure url='https://muse.example/1.mp3' type='audio/mpeg'/></item>"
        )
    )
    (item,) = feed.items
    assert (item.id, item.first("title"), feed.kind) == ("g1", "One bold", DocumentKind.RSS)
    assert item.first("link") == "https://muse.example/1"
    assert item.first("description") == "Text"
    assert "onclick" not in str(item.attributes)
    assert str(item.first("published")) == "2026-11-15 09:30:00+00:00"
    assert item.attributes["category"] == ("rock",)
    assert item.attributes["enclosure"] == ("https://muse.example/1.mp3",)
    assert "mismatch" in (feed.note or "")


def test_atom_is_parsed_by_feedparser() -> None:
    feed = read(
        "<feed xmlns='http://www.w3.org/2005/Atom' xml:base='https://muse.example/'><title>Blog</title>"
        "<entry><id>urn:1</id><title type='html'>A &lt;b>bold&lt;/b> step</title><link href='one'/>"
        "<link rel='related' href='https://other.example/'/><author><name>Ann</name></author>"
        "<updated>2026-11-15T09:30:00Z</updated><content type='html'>&lt;p>x&lt;/p></content><a></b></entry></feed>"
    )
    (item,) = feed.items
    assert (feed.kind, feed.title, item.id) == (DocumentKind.ATOM, "Blog", "urn:1")
    assert item.first("title") == "A bold step"
    assert item.first("link") == "https://muse.example/one"
    assert item.first("link:related") == "https://other.example/"
    assert item.first("author") == "Ann"
    assert item.first("content") == "x"
    assert "description" not in item.attributes


def test_format_that_only_feedparser_knows_is_parsed() -> None:
    feed = read("<CHANNEL HREF='https://muse.example/'><TITLE>Old</TITLE><ITEM><TITLE>y</TITLE></ITEM></CHANNEL>")
    assert [item.first("title") for item in feed.items] == ["y"]


BOMBS = {
    "entities": "<!DOCTYPE rss [<!ENTITY a 'b'>]><rss><channel><title>&a; & </b></title></channel></rss>",
    "entities after junk": "Warning!\n<?xml version='1.0'?><!DOCTYPE rss [<!ENTITY a 'b'>]>" + rss(ITEM + "<a></b>"),
    "depth": rss("<a>" * 200 + "</a>" * 200),
    "depth after an ampersand": rss("<title>Q&A</title>" + "<a>" * 200 + "</a>" * 200),
    "html": "<!DOCTYPE html><html><body><item><title>x</title></item><p></body></html>",
    "another family": "<kml><Placemark><name>a</name></Placemark></kml>",
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.usefixtures("no_feedparser")
def test_hostile_document_is_not_passed_to_feedparser(name: str) -> None:
    with pytest.raises(BrokenDocumentError):
        read(BOMBS[name])


@pytest.mark.usefixtures("no_feedparser")
def test_large_document_is_not_passed_to_feedparser() -> None:
    with pytest.raises(BrokenDocumentError, match="mismatch"):
        read(rss("<item><title>a</b></title></item>" + "x" * decode_tolerant.MAX_TOLERANT))


def test_feedparser_is_stopped_after_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = SandboxPool(replace(decode_tolerant._PROGRAM, cpu_seconds=1.0), workers=1)
    monkeypatch.setattr(decode_tolerant, "_SANDBOX", sandbox)
    # feedparser compares each of the hundred thousand words with all previous ones.
    words = ",".join(map(str, range(100_000)))
    text = "<rss xmlns:itunes='http://www.itunes.com/dtds/podcast-1.0.dtd'><channel><item><title>a</b></title>"
    with pytest.raises(BrokenDocumentError, match="mismatch"):
        read(f"{text}<itunes:keywords>{words}</itunes:keywords></item></channel></rss>")
    assert sandbox.pids() == []
    sandbox.close()


def test_feedparser_fetches_nothing_and_opens_nothing(tmp_path: Any) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text(rss("<item><title>secret</title></item>"))
    for text in (f"file://{secret}", str(secret), "http://127.0.0.1:9/rss"):
        with pytest.raises(BrokenDocumentError):
            read(f"<rss><channel><link>{text}</b></link></channel></rss>")
    assert decode_tolerant._parse(str(secret)) == {"version": "", "feed": {}, "entries": []}


@pytest.mark.parametrize(
    ("data", "charset", "title"),
    [
        ("<rss><channel><title>café</title></channel></rss>".encode("cp1252"), None, "café"),
        (
            "<?xml version='1.0' encoding='utf-8'?><rss><channel><title>Žlutý “kůň”</title></channel></rss>".encode()
            + b"<!-- \xff -->",
            None,
            "Žlutý “kůň”",
        ),
    ],
)
def test_wrong_charset_is_guessed_and_noted(data: bytes, charset: str | None, title: str) -> None:
    feed = read(data, charset)
    assert feed.title == title
    assert "bytes that are not" in (feed.note or "")


CAFE = "<rss><channel><title>caf\u00e9</title></channel></rss>"
DECLARED = "<?xml version='1.0' encoding='utf-8'?>" + CAFE


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        (CAFE.encode("latin-1"), "ISO-8859-1"),
        (CAFE.encode(), "ISO-8859-1"),
        (CAFE.encode(), '"utf-8"'),
        (DECLARED.encode(), "gbk"),
        (CAFE.encode(), "no-such-charset"),
        (CAFE.encode(), "punycode"),
        (CAFE.encode(), "utf-8\0"),
        (CAFE.encode("utf-32-le"), None),
        (CAFE.encode("utf-16"), "utf-8"),
        (DECLARED.encode("cp1252"), "cp1252"),
    ],
)
def test_charset_of_the_server_is_used_if_it_is_possible(data: bytes, charset: str | None) -> None:
    feed = read(data, charset)
    assert (feed.title, feed.note) == ("café", None)


def test_seven_bit_charset_is_not_taken_for_utf_8() -> None:
    data = "<rss><channel><title>日本</title></channel></rss>".encode("iso-2022-jp")
    assert read(data, "ISO-2022-JP").title == "日本"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet="<>/&;#ax! rsitem='\"\0\x01\n[]-?:CDATA", max_size=60))
def test_repairing_is_idempotent_and_keeps_valid_xml(inner: str) -> None:
    once = repair_xml(rss(inner))
    assert once is None or repair_xml(once) == once
    sound = rss(ITEM)
    assert repair_xml(sound) == sound


KEYS = "entries feed version title links href rel content value tags id authors name summary_detail source published"
ANYTHING = st.recursive(
    st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(ANYTHING)
def test_any_output_of_feedparser_is_converted_or_ignored(entry: Any) -> None:
    output = {"version": "rss20", "feed": {"title": "T"}, "entries": [entry]}
    document = decode_tolerant.wire_document(output, "a.xml")
    assert document is not None
    assert len(adapt(document, "F").items) <= 1
