"""Broken and hostile documents raise BrokenDocumentError quickly and with a position."""

from __future__ import annotations

import codecs
import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import BrokenDocumentError
from runnel.sources.documents.adapt import adapt
from runnel.sources.documents.decode import decode

LAUGHS = (
    "<?xml version='1.0'?><!DOCTYPE lolz [<!ENTITY lol 'lol'>"
    + "".join(f"<!ENTITY lol{n} '{f'&lol{n - 1};' * 10}'>" for n in range(1, 10))
    + "]><rss><channel><title>&lol9;</title></channel></rss>"
)
BROKEN = {
    "billion laughs": LAUGHS,
    "quadratic": f"<!DOCTYPE rss [<!ENTITY a '{'a' * 50000}'>]><rss><channel>{'&a;' * 50000}</channel></rss>",
    "external entity": "<!DOCTYPE rss [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><rss><channel>&x;</channel></rss>",
    "parameter entity": "<!DOCTYPE rss [<!ENTITY % x SYSTEM 'http://evil.example/x.dtd'> %x;]><rss/>",
    "internal subset after names": "<!DOCTYPE rss PUBLIC 'a[' \"b>\" [<!ELEMENT a ANY>]><rss><channel/></rss>",
    "hidden behind comments": "<!-- <rss> --><?x ?><!DOCTYPE rss [<!ENTITY a 'b'>]><rss><channel>&a;</channel></rss>",
    "empty subset": "<!DOCTYPE rss []><rss><channel/></rss>",
    "truncated": "<rss><channel><item><title>Half",
    "empty": "",
    "blank": " \n\t ",
    "words": "hello there",
    "html": "<!DOCTYPE html><html><head><title>x</title></head><body><p>y<br></body></html>",
    "html after a comment": "<!-- hi -->\n<HTML><body>",
    "another root": "<opml version='2.0'><body/></opml>",
    "no channel": "<rss version='2.0'/>",
    "too deep": "<rss><channel>" + "<a>" * 200 + "</a>" * 200 + "</channel></rss>",
    "much too deep": "<rss>" + "<a>" * 100_000,
    "number": "17",
    "json cut off": '{"id": 1',
    "json scalar lines": "[1\n2\n3",
    "json deep": "[" * 100_000,
    "json deep object": '{"a":' * 50_000,
    "json deep but whole": '{"a":' * 500 + "1" + "}" * 500,
    "json feed without items": '{"version": "https://jsonfeed.org/version/1.1"}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_documents_are_rejected_with_a_position(name: str) -> None:
    started = time.process_time()
    with pytest.raises(BrokenDocumentError) as caught:
        adapt(decode(BROKEN[name].encode(), "a.xml"), "F")
    assert caught.value.place is not None
    assert caught.value.place.startswith("a.xml:")
    assert "root:" not in str(caught.value)
    assert time.process_time() - started < 5


def test_hints_name_the_cause() -> None:
    with pytest.raises(BrokenDocumentError, match="HTML page"):
        decode(BROKEN["html"].encode(), "a.xml")
    with pytest.raises(BrokenDocumentError, match="must not contain declarations"):
        decode(LAUGHS.encode(), "a.xml")
    with pytest.raises(BrokenDocumentError, match="bytes"):
        decode(b"<rss/>" * 10, "a.xml", limit=50)


def test_position_of_a_syntax_error_counts_lines_before_the_declaration() -> None:
    with pytest.raises(BrokenDocumentError) as caught:
        decode(b"\n\n<?xml version='1.0'?>\n<rss>\n<channel></rss>", "a.xml")
    assert str(caught.value.place).startswith("a.xml:5:")


def test_document_with_too_many_elements_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runnel.model.safe_xml.parse_xml.__kwdefaults__", {"max_elements": 1000})
    with pytest.raises(BrokenDocumentError, match="more than 1000 elements"):
        decode(b"<rss><channel>" + b"<a/>" * 2000 + b"</channel></rss>", "a.xml")


FEED = "<rss><channel><title>Žluťoučký €</title></channel></rss>"


@pytest.mark.parametrize(
    "data",
    [
        FEED.encode(),
        codecs.BOM_UTF8 + FEED.encode(),
        codecs.BOM_UTF16_LE + FEED.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + FEED.encode("utf-16-be"),
        codecs.BOM_UTF32_LE + FEED.encode("utf-32-le"),
        f"<?xml version='1.0' encoding='utf-16'?>{FEED}".encode("utf-16-le"),
        f"<?xml version='1.0' encoding='windows-1250'?>{FEED}".encode("windows-1250"),
        f"<?xml version='1.0' encoding='no-such-charset'?>{FEED}".encode(),
        f"<?xml version='1.0' encoding='punycode'?>{FEED}".encode(),
        f"\n <?xml version='1.0' encoding='utf-8'?>{FEED}".encode(),
    ],
)
def test_documents_in_various_charsets_are_read(data: bytes) -> None:
    assert adapt(decode(data, "a.xml"), "F").title == "Žluťoučký €"


def test_latin_1_is_read_as_windows_1252() -> None:
    data = "<?xml version='1.0' encoding='ISO-8859-1'?><rss><channel><title>“é”</title></channel></rss>".encode(
        "cp1252"
    )
    assert decode(data, "a.xml").title == "“é”"


def test_wrong_charset_is_reported_with_line_and_column() -> None:
    data = b'{"id": "1"}\n{"id": "caf\xe9"}'
    with pytest.raises(BrokenDocumentError) as caught:
        decode(data, "a.jsonl")
    assert caught.value.place == "a.jsonl:2:12"
    assert "UTF-8" in (caught.value.hint or "")


def test_doctype_and_markup_inside_text_are_harmless() -> None:
    inner = "<![CDATA[<!DOCTYPE x [<!ENTITY a 'b'>]>&nbsp;text]]>"
    data = f"<rss><channel><item><guid>1</guid><description>{inner}</description></item></channel></rss>"
    (item,) = adapt(decode(data.encode(), "a.xml"), "F").items
    assert item.first("description") == "]> text"


def test_many_items_are_read_in_seconds() -> None:
    items = "".join(f"<item><guid>{n}</guid><title>Story {n}</title></item>" for n in range(100_000))
    data = f"<rss><channel>{items}</channel></rss>".encode()
    started = time.process_time()
    feed = adapt(decode(data, "a.xml"), "F")
    assert (len(feed.items), feed.items[0].id) == (100_000, "99999")
    assert time.process_time() - started < 30


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_rejected(data: bytes) -> None:
    check(data)


PIECES = [
    b"<rss>", b"<channel>", b"<item>", b"</item>", b"</channel>", b"</rss>", b"<title>", b"</title>", b"<![CDATA[",
    b"]]>", b"<!--", b"-->", b"&amp;", b"&nbsp;", b"&x;", b"<!DOCTYPE rss ", b"[", b"]", b">", b"'", b'"', b"\xff",
    b"\x00", b"NaN", b"{", b"}", b'"version":"https://jsonfeed.org/version/1"', b'"items":', b"[{", b'"id":1', b",",
    b"\n", b"1e9", b"NaN", b"<feed xmlns='http://www.w3.org/2005/Atom'>", b"<entry>", b"</entry>", b"</feed>",
    b"<content type='xhtml'>", b"<pubDate>0001-01-01T00:00:00+23:59</pubDate>", b"<link>http://[x</link>",
    b"<?xml version='1.0' encoding='utf-7'?>",
]  # fmt: skip


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join))
def test_shuffled_feeds_are_read_or_rejected(data: bytes) -> None:
    check(data)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES[6:]), max_size=6).map(b"".join))
def test_damaged_entries_are_read_or_rejected(data: bytes) -> None:
    check(b"<rss><channel><item><guid>1</guid>" + data + b"</item></channel></rss>")


SAMPLES = sorted((Path(__file__).parents[3] / "data").iterdir())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_damaged_samples_are_read_or_rejected(sample: Path) -> None:
    data = sample.read_bytes()
    chance = random.Random(sample.name)
    for _ in range(20):  # many of these need a process of their own
        check(data[: chance.randrange(len(data))])
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.choice(b"<>&\"'/ \0\xff]{}[,:a1")
        check(bytes(damaged))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "id",
        "title",
        "published",
        "updated:text",
        "updated",
        "link",
        "content:html",
        "items",
        "tags",
        "authors",
        "_x",
        "url",
    ]
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=6), max_size=3), st.booleans())
def test_any_json_objects_are_read_or_rejected(objects: list[dict[str, object]], feed: bool) -> None:
    if feed:
        check(json.dumps({"version": "https://jsonfeed.org/version/1.1", "items": objects}).encode())
    check("\n".join(map(json.dumps, objects)).encode())


def test_positions_are_right_at_the_end_of_long_documents() -> None:
    lines = "".join(f"<item><guid>{n}</guid></item>\n" for n in range(1, 80_001))
    feed = adapt(decode(f"<rss><channel>\n{lines}<item/></channel></rss>".encode(), "a.xml"), "F")
    assert [problem.place for problem in feed.problems] == ["a.xml:80002"]


def check(data: bytes) -> None:
    try:
        feed = adapt(decode(data, "a"), "F")
    except BrokenDocumentError as error:
        fair = error.place is not None and bool(error.message)
    else:
        fair = all(item.id for item in feed.items)
    assert fair
