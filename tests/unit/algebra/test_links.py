"""Links: canonical forms, extraction from texts, and robustness."""

from __future__ import annotations

import lxml.html
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_atoms import hosts, links
from yarl import URL

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Extends, References, Shares
from runnel.algebra.semantics.evaluate import satisfies
from runnel.algebra.values.links import canonical_host, canonical_link, links_in

X = Attribute("x")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("HTTP://Muse.Example:80", "http://muse.example/"),
        ("https://muse.example:443/a#b", "https://muse.example/a"),
        ("https://muse.example:8443/", "https://muse.example:8443/"),
        ("  https://muse.example/a?b=1#c\n", "https://muse.example/a?b=1"),
        ("https://me:secret@muse.example/", "https://muse.example/"),
        ("https://muse.example.@evil.example/", "https://evil.example/"),
        ("https://Bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://xn--BCHER-kva.example/%c3%bc", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://muse.example/%7Ea/%2e%2E/b", "https://muse.example/b"),
        ("https://muse.example/a/./../b/..", "https://muse.example/"),
        ("https://muse.example./a/", "https://muse.example/a/"),
        ("http://[2001:DB8::0:1]:80/", "http://[2001:db8::1]/"),
        ("https://muse.example?q", "https://muse.example/?q"),
        ("ftp://muse.example:21/a", "ftp://muse.example/a"),
        ("https://evil.example\\@muse.example/", None),
        ("https:\\\\muse.example\\", None),
        ("https://muse.example:99999/", None),
        ("https://[::1/", None),
        ("https://[muse.example]/", None),
        ("https:///a", None),
        ("https://a b/", None),
        ("//muse.example/", None),
        ("javascript://%0aalert(1)", None),
        ("mailto:me@muse.example", None),
        ("https://" + "a" * 300 + ".example/", None),
        ("https://\ud800.example/", None),
        ("https://muse.example/\0", None),
        ("https://" + "ü" * 10_000, None),
        ("", None),
    ],
)
def test_canonical_links(text: str, url: str | None) -> None:
    assert canonical_link(text) == url


@settings(max_examples=300, deadline=None, derandomize=True)
@given(links)
def test_canonical_form_of_a_canonical_link_is_unchanged(url: str) -> None:
    assert canonical_link(url) == url
    assert [link.url for link in links_in(url)] == [url]
    host = URL(url).raw_host or ""
    assert links_in(url)[0].host == host


@settings(max_examples=200, deadline=None, derandomize=True)
@given(hosts)
def test_canonical_form_of_a_canonical_host_is_unchanged(host: str) -> None:
    assert canonical_host(f"[{host}]" if ":" in host else host) == host


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.example/x. Or http://b.example!", ["https://a.example/x", "http://b.example"]),
        ("(https://a.example/x_(y)), [http://b.example/]", ["https://a.example/x_(y)", "http://b.example/"]),
        ("<https://a.example/>;'http://b.example'", ["https://a.example/", "http://b.example"]),
        ("見てhttps://a.example/x。", ["https://a.example/x"]),
        ("<a class=x HREF = 'ftp://a.example/y'>z</a>", ["ftp://a.example/y"]),
        ('<a href="http://a.example/?a=1&amp;b=2.">', ["http://a.example/?a=1&amp;b=2."]),
        ("<a href='/relative'>, mailto:x@y.example, www.a.example", []),
        ("xhttps://", []),
        ("", []),
    ],
)
def test_links_in_running_text(text: str, found: list[str]) -> None:
    assert [text[link.start : link.end] for link in links_in(text)] == found


_hrefs = st.sampled_from(["https://a.example/1", "http://b.example/?x=1&y=2", "https://c.example/(d).", "/relative"])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(_hrefs, st.sampled_from(["text", "a < b & c", ""])), max_size=4))
def test_an_html_parser_finds_the_same_links(parts: list[tuple[str, str]]) -> None:
    root = lxml.html.Element("div")
    for href, text in parts:
        child = lxml.html.Element("a", href=href)
        child.text = text
        root.append(child)
    shown = lxml.html.tostring(root, encoding="unicode")
    expected = [canonical_link(href) for href, _ in parts if "://" in href]
    assert [link.url for link in links_in(shown)] == expected


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.sampled_from("htps:/.@[]%?#&;\\ aü\ud800\0'\"<>=ref"), max_size=30), st.text(max_size=20))
def test_no_text_raises_an_error(start: str, rest: str) -> None:
    for text in (start, f"https://{start}{rest}", f"<a href='http://{start}'>{rest}", f"x http://{rest}"):
        for link in links_in(text):
            assert canonical_link(link.url) == link.url
            assert 0 <= link.start < link.end <= len(text)
        for atom in (References(X, "a.example"), Extends(X, "http://a.example/"), Shares(X, ("http://a.example/",))):
            assert satisfies(atom, text) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "http://" * 150_000,
        "http://a.example/" + ")" * 1_000_000,
        "https://" + "@" * 1_000_000,
        "href=" * 200_000,
        "href='" * 170_000,
        "http://a.example/" + "/.." * 300_000,
        "http://" + "ü." * 500_000,
        "http://a.example/" + "%2e" * 300_000,
        "href=" + " " * 1_000_000 + "x://",
    ],
    ids=range(9),
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    assert all(link.end <= len(text) for link in links_in(text))


@pytest.mark.parametrize(
    ("target", "text", "truth"),
    [
        ("muse.example", "https://muse.example/news", True),
        ("muse.example", "http://www.muse.example", True),
        ("muse.example", "https://notmuse.example/", False),
        ("muse.example", "https://muse.example.evil.example/", False),
        ("muse.example", "see https://blog.muse.example/1.", True),
        ("muse.example", "muse.example", False),
        ("10.0.0.1", "http://10.0.0.1/", True),
        ("0.0.1", "http://10.0.0.1/", False),
        ("example", "http://muse.example/", True),
        ("10.0.0.1", "http://1.10.0.0.1/", False),
        ("::1", "http://[0::1]/", True),
        ("https://muse.example/a", "https://MUSE.example:443/a#x", True),
        ("https://muse.example/a", "http://muse.example/a", False),
        ("https://muse.example/a", "https://muse.example/a/", False),
    ],
)
def test_references(target: str, text: str, truth: bool) -> None:
    assert satisfies(References(X, target), text) is truth


@pytest.mark.parametrize(
    ("prefix", "text", "truth"),
    [
        ("https://muse.example/news", "https://muse.example/news/2026/1?x", True),
        ("https://muse.example/news", "https://muse.example/news", True),
        ("https://muse.example/news", "https://muse.example/news/", True),
        ("https://muse.example/news", "https://muse.example/newspaper", False),
        ("https://muse.example/news", "https://muse.example/news/../private", False),
        ("https://muse.example/news", "https://www.muse.example/news/1", False),
        ("https://muse.example/news", "https://muse.example:8443/news/1", False),
        ("https://muse.example/", "https://muse.example/anything", True),
        ("https://muse.example/", "https://muse.example.evil.example/", False),
    ],
)
def test_extends(prefix: str, text: str, truth: bool) -> None:
    assert satisfies(Extends(X, prefix), text) is truth


def test_shares() -> None:
    atom = Shares(X, ("https://a.example/", "https://b.example/1"))
    assert satisfies(atom, "first https://b.example/1, then https://c.example/")
    assert not satisfies(atom, "https://b.example/2")
    assert not satisfies(atom, 3.0)
