"""Import and export of feed lists in OPML."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import BrokenDocumentError
from runnel.language.grammar.parser import parse
from runnel.sources.opml import OpmlFeed, feed_names, read_opml, write_opml


def opml(body: str) -> bytes:
    return (
        f"<?xml version='1.0'?><opml version='2.0'><head><title>x</title></head><body>{body}</body></opml>".encode()
    )


def test_folders_titles_and_unusual_spellings_are_read() -> None:
    result = read_opml(
        opml(
            "<outline text='Music'><outline text='Rock &amp; pop'>"
            "<outline type='rss' text='Muse' title='Muse news' xmlUrl='https://muse.example/rss'/></outline>"
            "<outline TEXT='Shouted' XMLURL='http://loud.example/'/></outline>"
            "<outline xmlurl='https://www.plain.example/feed?a=1'/>"
            "<outline text='Old' type='rss' url='feed://old.example/rss'/>"
        )
    )
    assert list(result) == [
        OpmlFeed("Muse news", "https://muse.example/rss", ("Music", "Rock & pop")),
        OpmlFeed("Shouted", "http://loud.example/", ("Music",)),
        OpmlFeed("plain.example", "https://www.plain.example/feed?a=1"),
        OpmlFeed("Old", "http://old.example/rss"),
    ]
    assert result.problems == ()


@pytest.mark.parametrize(
    ("outline", "problem"),
    [
        ("<outline text='a' xmlUrl='file:///etc/passwd'/>", "not a valid web address"),
        ("<outline text='a' xmlUrl='javascript:alert(1)'/>", "not a valid web address"),
        ("<outline text='a' xmlUrl='https://'/>", "not a valid web address"),
        ("<outline text='a' xmlUrl='https://a.example/&#10;x'/>", "not a valid web address"),
        (f"<outline text='a' xmlUrl='https://a.example/{'x' * 9000}'/>", "not a valid web address"),
        ("<outline text='a' type='rss'/>", "has no address"),
        ("<outline text='a' xmlUrl='https://ok.example/'/>", "more than once"),
    ],
)
def test_problem_of_an_outline_has_its_line_and_does_not_affect_others(outline: str, problem: str) -> None:
    result = read_opml(opml(f"<outline xmlUrl='https://ok.example/'/>\n{outline}"), "list.opml")
    assert [feed.address for feed in result.feeds] == ["https://ok.example/"]
    (reported,) = result.problems
    assert problem in reported.message
    assert reported.place == "list.opml:2"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"words", b"{}", b"<rss/>", b"<opml/>", b"<opml><head/></opml>", b"<html><body><outline/></body></html>",
        b"<!DOCTYPE opml [<!ENTITY a 'b'>]><opml><body><outline xmlUrl='http://a.example/&a;'/></body></opml>",
        opml("<outline text='x'>" * 200 + "</outline>" * 200), b"<opml><body><outline xmlUrl='http://a.ex",
    ],
)  # fmt: skip
def test_document_that_is_not_opml_is_rejected(data: bytes) -> None:
    with pytest.raises(BrokenDocumentError):
        read_opml(data)


def test_list_with_unescaped_characters_is_read() -> None:
    (feed,) = read_opml(opml("<outline text='Q&A' xmlUrl='https://q.example/?a=1&b=2'/>")).feeds
    assert (feed.title, feed.address) == ("Q&A", "https://q.example/?a=1&b=2")


def test_too_large_list_is_rejected() -> None:
    with pytest.raises(BrokenDocumentError, match="the limit is 50"):
        read_opml(opml(""), limit=50)


TITLES = st.text(st.characters(codec="utf-8"), max_size=30)
ADDRESSES = st.from_regex(r"https?://[a-z0-9.-]{1,20}\.example(/[!-~]{0,20})?", fullmatch=True)


def tidy(text: str) -> str:
    """Remove characters that XML forbids, and normalize spaces."""
    return " ".join(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", text).split())


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TITLES, ADDRESSES, st.lists(TITLES, max_size=3)), max_size=8, unique_by=lambda row: row[1]))
def test_written_list_can_be_read_again(rows: list[tuple[str, str, list[str]]]) -> None:
    feeds = [OpmlFeed(title, address, tuple(folders)) for title, address, folders in rows]
    result = read_opml(write_opml(feeds))
    assert result.problems == ()
    assert [feed.address for feed in result] == [feed.address for feed in feeds]
    for written_feed, read_feed in zip(feeds, result, strict=True):
        assert read_feed.title == (tidy(written_feed.title) or read_feed.title)
        assert read_feed.folders == tuple(folder for folder in map(tidy, written_feed.folders) if folder)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(TITLES | st.sampled_from(["Muse", "muse", "and", "7"]), ADDRESSES), max_size=12),
    st.sets(st.sampled_from(["Muse", "muse2", "Feed7", "MUSE3"])),
)
def test_feed_names_are_valid_and_unique(rows: list[tuple[str, str]], taken: set[str]) -> None:
    names = feed_names([OpmlFeed(title, address) for title, address in rows], taken)
    assert len(names) == len(rows)
    folded = [name.casefold() for name in names]
    assert len(set(folded)) == len(folded)
    assert not set(folded) & {name.casefold() for name in taken}
    for name in names:
        assert len(parse(f"register feed 'https://a.example/' as {name};")) == 1


def test_naming_ten_thousand_feeds_with_the_same_title_is_fast() -> None:
    names = feed_names([OpmlFeed("News", f"https://{number}.example/") for number in range(10_000)])
    assert (names[0], names[-1]) == ("News", "News10000")


@pytest.mark.parametrize(
    "bad",
    [
        b'<outline text="The "Muse" blog" xmlUrl="https://a.example/"/>',
        b'<outline text="1 < 2 & 3" xmlUrl="https://a.example/"/>',
        b'<outline text="a <b>bold</b> title" xmlUrl="https://a.example/"/>',
        b'<outline text="null\x00 and \x1f" xmlUrl="https://a.example/"/>',
        b'<outline text="caf\xe9" xmlUrl="https://a.example/"/>',
        b'<outline text="&nosuch; &#xFFFF;" xmlUrl="https://a.example/"/>',
        b'<outline text="open folder"><outline text="a" xmlUrl="https://a.example/"/>',
        b'</outline><outline text="a" xmlUrl="https://a.example/"/>',
        b'<outline text=unquoted xmlUrl="https://a.example/"/>',
    ],
)
def test_broken_outline_does_not_affect_the_rest_of_the_list(bad: bytes) -> None:
    document = (
        b'<?xml version="1.0" encoding="utf-8"?><opml version="2.0"><body>'
        b'<outline text="Folder"><outline text="One" xmlUrl="https://one.example/" htmlUrl="https://one.example/home"/>'
        b"</outline>\n" + bad + b'\n<outline text="Two" xmlUrl="https://two.example/?a=1"/></body></opml>'
    )
    result = read_opml(document, "list.opml")
    assert [feed.address for feed in result.feeds] == [
        "https://one.example/",
        "https://a.example/",
        "https://two.example/?a=1",
    ]
    assert result.feeds[0].folders == ("Folder",)
    assert result.feeds[0].home == "https://one.example/home"
    assert len(result.repairs) == 1
    assert result.repairs[0].startswith("list.opml:")


def test_valid_list_needs_no_repairs_and_keeps_homes_and_categories() -> None:
    feeds = [OpmlFeed("Muse", "https://muse.example/rss", ("Music",), "https://muse.example/", ("/Music/Live", "x"))]
    result = read_opml(write_opml(feeds))
    assert list(result) == feeds
    assert result.repairs == ()
