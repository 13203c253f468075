"""What a person gets to read, and that nothing in it can be used against them."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import DeliveryError
from runnel.model.item import Item, Value
from runnel.model.subscription import Subscription
from runnel.sinks.contract import Content, DeliveredItem, Delivery
from runnel.sinks.files.valid_texts import xml_text
from runnel.sinks.mail.compose_mail import compose_mail
from runnel.sinks.mail.mail_address import sender_of
from runnel.sinks.mail.mail_html import HtmlTooLargeError, one_line, safe_html, text_of_html
from runnel.sinks.mail.render_mail import IN_FULL, WIDTH, WITH_EXCERPT, render_mail

Make = Callable[..., Any]
SENT = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
SENDER = sender_of("Runnel <runnel@muse.example>")


def delivery_of(*items: Item, name: str = "RockConcerts", title: str | None = None, source: str = "News") -> Delivery:
    return Delivery(
        key="1f-2-3",
        subscription=Subscription(1, 2, "mail", "me@mail.example", 0, SENT),
        feed_name=name,
        feed_title=name if title is None else title,
        items=[DeliveredItem(item, source) for item in items],
        sent=SENT,
        out=Path(),
    )


def item_of(identifier: str, **attributes: Value) -> Item:
    return Item("News", identifier, {name: (value,) for name, value in attributes.items()}, 1, 1, SENT)


def composed(delivery: Delivery) -> EmailMessage:
    data = compose_mail(delivery, render_mail(delivery), SENDER, "me@mail.example")
    mail = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(mail, EmailMessage)
    return mail


class Reader(HTMLParser):
    """All elements and attributes of a page, as a mail program would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def check_page(page: str) -> None:
    """Nothing that runs, is fetched, or leads anywhere but to the web and to mail."""
    read = Reader(page)
    assert not {"script", "img", "iframe", "object", "embed", "form", "input", "link", "svg", "base", "video"} & {
        *read.tags
    }
    assert read.tags.count("style") == 1
    for tag, name, value in read.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "srcset", "background", "action", "poster")
        if name == "href":
            assert re.match(r"(https?|mailto):", value, re.IGNORECASE), (tag, value)
        if name == "style":
            assert value == "color:#767676"
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


# --- what is there -----------------------------------------------------------------------------------------------


def test_one_item_has_its_title_as_subject_and_is_shown_in_full() -> None:
    rendered = render_mail(
        delivery_of(
            item_of(
                "a",
                title="Muse & co",
                link="https://muse.example/?a=1&b=2",
                author="Ann",
                published=SENT,
                **{"content": "x", "content:html": "<p>Three <b>nights</b></p><ul><li>Bern</li><li>Basel</li></ul>"},
            ),
            source="The News",
        )
    )
    assert rendered.subject == "Muse & co"
    assert rendered.text == (
        "RockConcerts\n============\n\n\n"
        "Muse & co\nThe News · Ann · 15 November 2026, 09:30 UTC\n\nThree nights\n\n- Bern\n- Basel\n\n"
        "https://muse.example/?a=1&b=2\n\n"
        "-- \nThis address is subscribed to the feed RockConcerts.\n"
    )
    assert rendered.html is not None
    assert '<a href="https://muse.example/?a=1&amp;b=2">Muse &amp; co</a>' in rendered.html
    assert "<p>Three <b>nights</b></p>" in rendered.html
    check_page(rendered.html)


def test_subject_has_the_number_of_items_and_all_items_are_included() -> None:
    count = WITH_EXCERPT + 20
    items = [
        item_of(
            str(number), title=f"Title {number}.", link=f"https://muse.example/{number}", description="word " * 200
        )
        for number in range(count)
    ]
    rendered = render_mail(delivery_of(*items))
    assert rendered.subject == "RockConcerts: 120 new items"
    assert rendered.html is not None
    for number in range(count):
        assert f"\nTitle {number}.\n" in rendered.text
        assert f"\nhttps://muse.example/{number}\n" in rendered.text
        assert f'href="https://muse.example/{number}"' in rendered.html
    assert rendered.html.count('<div class="said">') == rendered.text.count("…") == WITH_EXCERPT
    check_page(rendered.html)


@pytest.mark.parametrize(("count", "whole"), [(IN_FULL, True), (IN_FULL + 1, False)])
def test_few_items_are_shown_in_full_and_many_as_excerpts(count: int, whole: bool) -> None:
    long = "concert " * 200 + "the end"
    rendered = render_mail(delivery_of(*(item_of(str(n), title="T", description=long) for n in range(count))))
    assert ("the end" in rendered.text) is whole
    assert ("the end" in str(rendered.html)) is whole


def test_text_is_wrapped_and_links_are_not_broken() -> None:
    link = "https://muse.example/" + "x" * 150
    rendered = render_mail(
        delivery_of(item_of("a", title="long title " * 15, link=link, description="some words " * 100))
    )
    assert link in rendered.text.split("\n")
    assert all(len(line) <= WIDTH for line in rendered.text.split("\n") if line != link)


def test_unsubscribe_link_is_in_text_and_html() -> None:
    link = "https://runnel.example/unsubscribe/a?b&c"
    rendered = render_mail(replace(delivery_of(item_of("a", title="T")), unsubscribe=link))
    assert f"To unsubscribe: {link}" in rendered.text
    assert 'href="https://runnel.example/unsubscribe/a?b&amp;c"' in str(rendered.html)


def test_item_with_too_large_html_is_shown_as_text() -> None:
    nested = "<div>" * 150 + "deep" + "</div>" * 150
    rendered = render_mail(delivery_of(item_of("a", title="T", **{"content": "plain words", "content:html": nested})))
    assert "plain words" in rendered.text
    assert "plain words" in str(rendered.html)


# --- what a stylesheet made ---------------------------------------------------------------------------------------


def test_html_of_a_stylesheet_is_cleaned_and_has_a_text() -> None:
    page = (
        "<html><head><title>Never</title><style>p{color:red}</style></head><body onload='x()'>"
        "<h1>Concerts</h1><script>steal()</script><p style='x'>In <a href='https://muse.example/'>Bern</a></p>"
        "<img src='https://spy.example/p.gif'><a href='javascript:x()'>no</a></body></html>"
    )
    rendered = render_mail(replace(delivery_of(), content=Content("text/html; charset=utf-8", page.encode())))
    assert rendered.subject == "RockConcerts"
    assert rendered.text.startswith("Concerts\n\nIn Bern <https://muse.example/>\n\nno\n\n-- \n")
    assert rendered.html is not None
    assert "steal" not in rendered.html
    assert "Never" not in rendered.html
    check_page(rendered.html)


def test_too_large_html_of_a_stylesheet_is_refused_permanently() -> None:
    for page in ("<div>" * 200, "<p>x</p>" * 200_000):
        with pytest.raises(DeliveryError) as caught:
            render_mail(replace(delivery_of(), content=Content("text/html", page.encode())))
        assert caught.value.permanent
        assert caught.value.hint


def test_text_of_a_stylesheet_is_wrapped_and_has_no_html_part() -> None:
    text = "Bern\n\x1b[31m" + "Basel " * 30
    rendered = render_mail(replace(delivery_of(), content=Content("text/plain; charset=utf-8", text.encode())))
    assert rendered.html is None
    assert rendered.text.startswith("Bern\n[31mBasel Basel")
    assert max(map(len, rendered.text.split("\n"))) <= WIDTH


def test_attachment_has_a_safe_file_name() -> None:
    hostile = delivery_of(name='../"x"\r\n;.exe')
    rendered = render_mail(replace(hostile, content=Content("application/xml; charset=utf-8", b"<a/>")))
    assert rendered.attachment is not None
    assert rendered.attachment.name == "xexe.xml"
    mail = composed(replace(hostile, content=Content("application/xml", b"<a/>")))
    (attached,) = mail.iter_attachments()
    assert attached.get_filename() == "xexe.xml"


# --- what nobody can do -------------------------------------------------------------------------------------------

HOSTILE = st.one_of(
    st.text(max_size=60),
    st.text(st.sampled_from("ab \r\n\t\0\x0b\x85\u2028\u202e,;:<>\"'=?&/()@%é🎸_-"), max_size=200),
    st.sampled_from(
        [
            "x\r\nBcc: all@mail.example",
            "x\nBcc: all@mail.example\n\nbody",
            "=?utf-8?q?x=0D=0ABcc:_all@mail.example?=",
            "=?utf-8?b?DQpCY2M6IGE=?=",
            "<script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "</title></style><script>x</script>",
            "a" * 2000,
            "é" * 500,
            "a, b <x@y.example>; (c)",
        ]
    ),
)
EXPECTED = {
    "From", "To", "Subject", "Date", "Message-ID", "List-Id", "Auto-Submitted", "Precedence", "MIME-Version",
    "Content-Type", "Content-Transfer-Encoding",
}  # fmt: skip


@settings(deadline=None, max_examples=250)
@given(title=HOSTILE, name=HOSTILE, source=HOSTILE, body=HOSTILE, key=HOSTILE, link=HOSTILE)
def test_item_texts_cannot_inject_headers_recipients_or_elements(
    title: str, name: str, source: str, body: str, key: str, link: str
) -> None:
    attributes: dict[str, Value] = {
        "title": title,
        "author": source,
        "link": f"https://muse.example/{link}",
        "content": body,
        "content:html": body,
    }
    delivery = replace(
        delivery_of(item_of(title or "x", **attributes), name=name, source=source), key=key, unsubscribe=link
    )
    data = compose_mail(delivery, render_mail(delivery), SENDER, "me@mail.example")
    assert data.isascii()
    assert not re.search(rb"(?<!\r)\n|\r(?!\n)", data)
    assert max(map(len, data.split(b"\r\n"))) <= 998
    mail = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(mail, EmailMessage)
    assert not mail.defects
    assert set(mail.keys()) <= EXPECTED
    assert len(mail.keys()) == len(set(mail.keys()))
    assert [address.addr_spec for address in mail["To"].addresses] == ["me@mail.example"]
    assert [address.addr_spec for address in mail["From"].addresses] == ["runnel@muse.example"]
    assert re.fullmatch(r"<[A-Za-z0-9_-]{1,100}@muse\.example>", str(mail["Message-ID"]))
    assert re.fullmatch(r"<[A-Za-z0-9_-]{1,100}\.feeds\.muse\.example>", str(mail["List-Id"]))
    parts = list(mail.iter_parts())
    assert [part.get_content_type() for part in parts] == ["text/plain", "text/html"]
    check_page(parts[1].get_content())


@settings(deadline=None, max_examples=150)
@given(HOSTILE)
def test_subject_is_one_line_and_survives_encoding(title: str) -> None:
    mail = composed(delivery_of(item_of("a", title=f"x{title}")))
    subject = str(mail["Subject"])
    assert subject.isprintable() or "\u200d" in subject or "\u200c" in subject
    assert len(subject) <= 200
    expected = one_line(xml_text(f"x{title}").replace("=?", "= ?"), 200)
    assert subject.replace(" ", "") == expected.replace(" ", "")


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "<p>", "</p>", "<a href='https://muse.example/'>", "<a href=javascript:x>", "</a>", "<li>", "<pre>",
                "<img src=x onerror=y>", "<svg/onload=x>", "<!--", "-->", "<style>", "</style>", "<script>",
                "<table>", "<td>", "<math>", "<mtext>", "<b", ">", "&lt;i&gt;", "text ", '"', "'", "<![CDATA[", "]]>",
                "<template>", "<noscript>", "<title>", "<a href='&#106;avascript:x'>", "\x00", "<base href=//x>",
                "<form action=x>",
            ]
        ),
        max_size=30,
    )
)  # fmt: skip
def test_any_html_is_sanitized(pieces: list[str]) -> None:
    source = "".join(pieces)
    cleaned = safe_html(source)
    check_page(f"<style></style>{cleaned}")
    assert text_of_html(cleaned).replace("\n", "").isprintable()
    rendered = render_mail(replace(delivery_of(), content=Content("text/html", source.encode())))
    check_page(str(rendered.html))


def test_text_of_html_preserves_line_breaks() -> None:
    page = (
        "<pre>a\tb\n  c</pre><p>one\ntwo<br>three</p><table><tr><td>x</td><td>y</td></tr><tr><td>z</td></tr></table>"
    )
    assert text_of_html(safe_html(page)) == "a   b\nc\n\none two\nthree\n\nx y\nz"
    link = "https://muse.example/"
    assert text_of_html(f'<a href="{link}">{link}</a> <a href="mailto:me@muse.example">write</a>') == (
        f"{link} write <mailto:me@muse.example>"
    )


def test_cleaning_refuses_html_that_would_take_long() -> None:
    with pytest.raises(HtmlTooLargeError):
        safe_html("<div>" * 100_000)
    with pytest.raises(HtmlTooLargeError):
        safe_html("x" * (1 << 21))
    assert safe_html("<p>" + "<b>x</b>" * 10_000 + "</p>").count("<b>") == 10_000
    assert safe_html("<!-- nothing -->") == ""


def test_line_keeps_joined_emoji_and_drops_direction_marks() -> None:
    assert one_line("👩\u200d🎤 sings\u202e!\x07", 20) == "👩\u200d🎤 sings !"
    assert one_line("x" * 50, 10) == "xxxxxxxxx…"
