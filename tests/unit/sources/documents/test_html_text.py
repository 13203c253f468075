"""Conversion of HTML from outside to text and safe HTML, and its running time."""

from __future__ import annotations

import random
import time

import lxml.html
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.net.safe_links import safe_link
from runnel.sources.documents.html_text import plain_text, read_markup

TEXTS = [
    ("plain", "plain"),
    ("a  b\n\tc", "a b c"),
    ("<p>One</p><p>Two</p>", "One\nTwo"),
    ("one<br>two<br/>three", "one\ntwo\nthree"),
    ("in<b>line</b>s", "inlines"),
    ("<td>a</td><td>b</td>", "a\nb"),
    ("&lt;b&gt; &amp;amp; &#x1F3B8; &eacute;", "<b> &amp; 🎸 é"),
    ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
    ("a <", "a <"),
    ("<!-- no -->yes<!-- never", "yes"),
    ("<script>no</script>yes<style>no</style>", "yes"),
    ("<SCRIPT type=x>no</ScRiPt >yes", "yes"),
    ("x<script>no", "x"),
    ("x<svg onload=alert(1)><text>no</text></svg>y", "x\ny"),
    ("<a title='>'>ok</a>", "ok"),
    ('<a title="unclosed>text', "text"),
    ("<![CDATA[inner]]>", "inner]]>"),
    ("", ""),
]


@pytest.mark.parametrize(("source", "text"), TEXTS)
def test_plain_text_of_markup_is_extracted(source: str, text: str) -> None:
    assert read_markup(source).text == text


def test_titles_are_on_one_line() -> None:
    assert plain_text("<h1>Big</h1>\n news &amp; <i>more</i>") == "Big news & more"


UNSAFE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='java&#10;script:alert(1)'>x</a>",
    "<a href=' &#1; javascript:alert(1)'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<iframe src='https://evil.example'></iframe>",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
    "<b style='background:url(javascript:alert(1))'>x</b>",
    "<form action='javascript:alert(1)'><input></form>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    '<a b=c"><img src=x onerror=alert(1)>">',
    "<<script>script>alert(1)<</script>/script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;<b>x</b>",
    "<base href='https://evil.example/'><link rel=stylesheet href=x><meta http-equiv=refresh content=0>",
]


@pytest.mark.parametrize("source", UNSAFE)
def test_harmful_markup_is_removed(source: str) -> None:
    tree = lxml.html.fragment_fromstring(read_markup(source, "https://a.example/").html, create_parent="div")
    for element in tree.iter():
        assert element.tag in {"div", "p", "a", "b", "img"}
        for name, value in element.attrib.items():
            assert name in {"href", "src", "title", "rel"}
            assert name not in {"href", "src"} or value.startswith("https://a.example/")


def test_safe_html_keeps_structure_and_resolves_links() -> None:
    read = read_markup("<ul><li>a<li>b</ul><p>x<p>y<img src='i.png' alt='A'>", "https://a.example/b/")
    assert read.html == ('<ul><li>a</li><li>b</li></ul><p>x</p><p>y<img src="https://a.example/b/i.png" alt="A"></p>')


ENDLESS = [
    "<div>", "<b title=1>", '<a "', "<a '<a \"", "</svg", "<svg", "<p><b></p>", "<b title=1></p>", "<table><b>", "<",
    "<a ", "</", "<!--", "&#", "<b><object></b></object>", "<b title=1><table></b></table>", "<script>", "<![CDATA[",
]  # fmt: skip


@pytest.mark.parametrize("piece", ENDLESS)
def test_deep_nesting_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    read_markup(piece * (300_000 // len(piece)))
    assert time.process_time() - started < 5


def test_reopened_formatting_does_not_multiply() -> None:
    source = "".join(f"<b title={n}>" for n in range(5000)) + "<p>x" * 5000
    assert len(read_markup(source).html) < 3_000_000


def test_random_tags_stay_small() -> None:
    chance = random.Random(7)
    names = ("b", "i", "a", "p", "table", "td", "tr", "li", "div", "caption", "col", "u", "rt", "dd", "pre", "tbody")
    source = "".join(
        f"<{chance.choice(['', '/'])}{chance.choice(names)} title={chance.randrange(99)}>x" for _ in range(20_000)
    )
    started = time.process_time()
    assert len(read_markup(source).html) < 20 * len(source)
    assert time.process_time() - started < 5


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet="<>/\"'=! -&;#abpscript\n", max_size=60))
def test_any_text_is_read(source: str) -> None:
    read = read_markup(source)
    again = read_markup(read.html)
    assert again.text == read.text
    assert "<script" not in read.html


@pytest.mark.parametrize(
    ("text", "base", "link"),
    [
        ("https://a.example/x", None, "https://a.example/x"),
        ("x", "https://a.example/b/c", "https://a.example/b/x"),
        ("//b.example/x", "https://a.example/", "https://b.example/x"),
        ("mailto:me@a.example", None, "mailto:me@a.example"),
        ("x", None, "x"),
        ("http://[::1", None, None),
        ("//[x", "https://a.example/", None),
        ("JAVASCRIPT:x", None, None),
        ("\x01javascript:x", None, None),
        ("file:///etc/passwd", None, None),
        ("x", "javascript:y", "x"),
        ("", None, None),
        ("h" * 9000, None, None),
    ],
)
def test_links_are_resolved_or_dropped(text: str, base: str | None, link: str | None) -> None:
    assert safe_link(text, base) == link
