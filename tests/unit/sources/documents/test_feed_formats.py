"""All feed formats are decoded and converted to items."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from runnel.model.item import Item
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.decode import decode
from runnel.sources.documents.wire import DocumentKind

DATA = Path(__file__).parents[3] / "data"


def read(name: str) -> AdaptedFeed:
    return adapt(decode((DATA / name).read_bytes(), name), "F")


def rss(items: str, head: str = "") -> AdaptedFeed:
    text = f"<rss version='2.0'><channel><title>T</title>{head}{items}</channel></rss>"
    return adapt(decode(text.encode(), "a.xml"), "F")


def only(feed: AdaptedFeed) -> Item:
    assert feed.problems == []
    (item,) = feed.items
    return item


@pytest.mark.parametrize(
    ("name", "kind", "title", "ids"),
    [
        ("rss_2.0.xml", DocumentKind.RSS, "Muse & News", ["https://muse.example/news/1", "muse-2"]),
        ("rss_0.91.xml", DocumentKind.RSS, "Café", ["http://cafe.example/2", "http://cafe.example/1"]),
        ("rss_0.90.rdf", DocumentKind.RDF, "Old", ["http://old.example/1"]),
        ("rss_1.0.rdf", DocumentKind.RDF, "RDF", ["http://rdf.example/1"]),
        ("atom_1.0.xml", DocumentKind.ATOM, "Blog & more", ["tag:atom.example,2026:1", "tag:atom.example,2026:2"]),
        ("atom_0.3.xml", DocumentKind.ATOM, "Three", ["tag:three.example,2004:1"]),
        ("feed_1.1.json", DocumentKind.JSON_FEED, "Json", ["1", "2"]),
        ("items.jsonl", DocumentKind.JSON_LINES, None, ["a", "7", "https://lines.example/3"]),
    ],
)
def test_items_of_each_format_are_oldest_first(
    name: str, kind: DocumentKind, title: str | None, ids: list[str]
) -> None:
    feed = read(name)
    assert (feed.kind, feed.title, feed.problems) == (kind, title, [])
    assert [item.id for item in feed.items] == ids
    assert all(item.feed == "F" for item in feed.items)


def test_rss_2_attributes_are_read() -> None:
    attributes = read("rss_2.0.xml").items[1].attributes
    assert attributes["title"] == ("Muse on tour 🎸",)
    assert attributes["link"] == ("https://muse.example/news/tour.html",)
    assert attributes["published"] == (datetime(2026, 11, 15, 14, 30, tzinfo=UTC),)
    assert attributes["author"] == ("ed@muse.example (Ed)", "Ann Author")
    assert attributes["category"] == ("rock", "tour", "music")
    assert attributes["description"] == ("First night\nin Paris",)
    assert attributes["content"] == ("Long story",)
    assert attributes["enclosure"] == ("https://muse.example/2.mp3",)
    assert attributes["comments"] == ("https://muse.example/talk/2",)
    assert attributes["source"] == ("Other",)
    assert attributes["language"] == ("en-gb",)
    assert attributes["slash:comments"] == ("12",)
    assert attributes["media:title"] == ("Photo",)
    assert attributes["media:content"] == ("https://muse.example/2.jpg",)
    assert attributes["x:rating"] == ("5",)
    html = str(attributes["description:html"][0])
    assert 'href="https://muse.example/paris"' in html
    assert "script" not in html
    assert "onclick" not in html


def test_atom_attributes_with_bases_persons_and_xhtml_are_read() -> None:
    attributes = read("atom_1.0.xml").items[1].attributes
    assert attributes["title"] == ("1 < 2 <b>",)
    assert attributes["link"] == ("https://atom.example/blog/2026/second.html",)
    assert attributes["enclosure"] == ("https://atom.example/blog/2026/second.ogg",)
    assert attributes["author"] == ("Ann", "Bob")
    assert attributes["category"] == ("Alpha", "b")
    assert attributes["description"] == ("plain & simple",)
    assert attributes["content"] == ("One\nTwo picture",)
    assert attributes["published"] == (datetime(2026, 11, 14, 22, tzinfo=UTC),)
    assert attributes["language"] == ("de",)
    html = str(attributes["content:html"][0])
    assert 'href="https://atom.example/blog/2026/pic.html"' in html
    assert "svg" not in html


def test_json_feed_attributes_are_read() -> None:
    first, second = read("feed_1.1.json").items
    assert first.attributes["content"] == ("brut <b>",)
    assert first.attributes["author"] == ("Old style",)
    assert second.attributes["content"] == ("Bonjour monde",)
    assert second.attributes["link"] == ("https://json.example/two",)
    assert second.attributes["category"] == ("a", "b")


def test_json_lines_keep_order_types_and_unreadable_dates() -> None:
    first, second, _ = read("items.jsonl").items
    assert first.attributes["price"] == (3.0,)
    assert first.attributes["tags"] == ("x", "y")
    assert first.attributes["published"] == (datetime(2026, 11, 15, 9, 30, tzinfo=UTC),)
    assert second.attributes["published:text"] == ("sometime",)
    assert "published" not in second.attributes


def test_array_of_objects_is_read_like_json_lines() -> None:
    feed = adapt(decode(b' [{"id": 1, "a": 1}, 5, {"id": 2, "a": true}]', "a.json"), "F")
    assert [item.id for item in feed.items] == ["1", "2"]
    assert feed.items[1].attributes["a"] == (True,)
    assert [problem.place for problem in feed.problems] == ["a.json:1"]


def test_namespace_and_not_prefix_determines_the_attribute() -> None:
    item = only(
        rss(
            "<item><guid>1</guid><zz:creator xmlns:zz='http://purl.org/dc/elements/1.1/'>Ann</zz:creator>"
            "<dc:creator xmlns:dc='urn:not-dublin'>Eve</dc:creator></item>"
        )
    )
    assert item.attributes["author"] == ("Ann",)
    assert item.attributes["other-dc:creator"] == ("Eve",)


def test_elements_of_the_format_take_precedence_over_extensions() -> None:
    dublin = "<dc:date xmlns:dc='http://purl.org/dc/elements/1.1/'>2001-01-01</dc:date>"
    item = only(rss(f"<item><guid>1</guid>{dublin}<pubDate>15 Nov 2026 00:00 GMT</pubDate></item>"))
    assert item.attributes["published"] == (datetime(2026, 11, 15, tzinfo=UTC),)


def test_invalid_date_is_kept_as_text() -> None:
    item = only(rss("<item><guid>1</guid><pubDate>next  Tuesday</pubDate></item>"))
    assert item.attributes["published:text"] == ("next Tuesday",)
    assert "published" not in item.attributes


@pytest.mark.parametrize("year", [1970, 2099])
def test_old_and_future_dates_are_accepted(year: int) -> None:
    item = only(rss(f"<item><guid>1</guid><pubDate>01 Jan {year} 00:00:00 GMT</pubDate></item>"))
    assert item.attributes["published"] == (datetime(year, 1, 1, tzinfo=UTC),)


def test_id_comes_from_guid_link_or_content() -> None:
    feed = rss(
        "<item><title>said</title></item>"
        "<item><link>https://a.example/1</link></item>"
        "<item><guid> g </guid><link>https://a.example/2</link></item>"
    )
    ids = [item.id for item in feed.items]
    assert ids[:2] == ["g", "https://a.example/1"]
    assert ids[2].startswith("urn:runnel:")
    again = rss("<item><title>said</title></item>")
    assert only(again).id == ids[2]


def test_duplicate_and_empty_entries_are_problems_and_others_are_read() -> None:
    feed = rss(
        "\n<item><guid>1</guid><title>newest</title></item>"
        "\n<item><guid>1</guid><title>older</title></item>\n<item/>\n<item><guid>2</guid></item>"
    )
    assert [(item.id, item.first("title")) for item in feed.items] == [("2", None), ("1", "newest")]
    assert [problem.place for problem in feed.problems] == ["a.xml:3", "a.xml:4"]


def test_last_of_duplicate_lines_is_used() -> None:
    feed = adapt(decode(b'{"id":1,"n":1}\n{"id":2,"n":2}\n{"id":1,"n":3}\n', "a.jsonl"), "F")
    assert [(item.id, item.first("n")) for item in feed.items] == [("2", 2.0), ("1", 3.0)]
    assert [problem.place for problem in feed.problems] == ["a.jsonl:3"]


def test_items_are_ordered_by_date_only_if_all_have_one() -> None:
    dated = "<item><guid>{0}</guid><pubDate>{0} Nov 2026 00:00 GMT</pubDate></item>"
    mixed = dated.format(3) + dated.format(9) + dated.format(5)
    assert [item.id for item in rss(mixed).items] == ["3", "5", "9"]
    assert [item.id for item in rss(mixed + "<item><guid>x</guid></item>").items] == ["x", "5", "9", "3"]


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "java\nscript:alert(1)", "data:text/html,x", "vbscript:x", " "]
)
def test_harmful_links_are_dropped(link: str) -> None:
    item = only(rss(f"<item><guid>1</guid><link>{link}</link></item>", "<link>https://a.example/</link>"))
    assert "link" not in item.attributes


def test_oversized_entry_is_a_problem() -> None:
    feed = rss(f"<item><guid>1</guid><description>{'x' * (1 << 20)}y</description></item><item><guid>2</guid></item>")
    assert [item.id for item in feed.items] == ["2"]
    assert "longer" in feed.problems[0].message


def test_unescaped_markup_in_a_description_is_read() -> None:
    item = only(rss("<item><guid>1</guid><description>a <b>bold</b> word</description></item>"))
    assert item.attributes["description"] == ("a bold word",)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('{"id": true}', "id"),
        ('{"id": {"a": 1}}', "id"),
        ('{"id": 1, "a": NaN}', "finite"),
        ('{"id": 1, "a": 1e999}', "finite"),
        ('{"id": 1, "a": %s}' % ("9" * 5000), "finite"),
        ('{"id": 1, "a": 1, "a": 2}', "twice"),
        ("[1]", "object"),
        ("{}", "empty"),
        ('{"id": 1', "JSON"),
        ('{"id": 1, "a": %s}' % ("[" * 200 + "]" * 200), "deep"),
        ('{"id": 1, "a": %s}' % ("[" * 5000 + "]" * 5000), "deep"),
        ('{"id": "%s"}' % ("x" * 5000), "id"),
    ],
)
def test_invalid_line_is_a_problem_with_its_number(line: str, word: str) -> None:
    feed = adapt(decode(f'{{"id": 0, "a": 1}}\n\n{line}\n{{"id": 9, "a": 2}}\n'.encode(), "a.jsonl"), "F")
    assert [item.id for item in feed.items] == ["0", "9"]
    (problem,) = feed.problems
    assert problem.place == "a.jsonl:3"
    assert word in problem.message


def test_huge_integers_and_emoji_in_lines_are_read() -> None:
    feed = adapt(decode('{"id": 123456789012345678901234567890, "title": "🎸\\u0000\\ud800"}'.encode(), "a"), "F")
    assert only(feed).id == "123456789012345678901234567890"
    assert only(feed).attributes["title"] == ("🎸?",)


def test_html_attributes_of_lines_are_made_safe() -> None:
    feed = adapt(decode(b'{"id": 1, "description:html": "<b onclick=x()>a</b><script>b</script>"}', "a"), "F")
    assert only(feed).attributes["description:html"] == ("<b>a</b>",)
