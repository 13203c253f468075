"""Hostile fragments of HTML by a seed, and what must be true of them when they are cleaned.

`python -m tests.unit.net.hostile_html 200000` checks more of them than a test has time for.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

from runnel.model.item import Item
from runnel.net.safe_html import URL_ATTRIBUTES, URL_LISTS, URL_SCHEMES
from runnel.sinks.files.feed_entries import _html
from runnel.sinks.mail.mail_html import HtmlTooLargeError
from runnel.sinks.mail.mail_html import safe_html as mail_html
from runnel.sources.documents.html_text import read_markup

_TAGS = (
    "a abbr b blockquote body br button caption center cite code col colgroup dd del details div dl dt em embed "
    "fieldset font form frameset h1 head hr html i iframe img input ins isindex kbd li link listing main map marquee "
    "math menu meta mglyph mi mtext nobr noembed noframes noscript object ol option optgroup p param plaintext pre q "
    "rb rp rt rtc ruby s script section select small source span strike style sub sup svg table tbody td template "
    "textarea tfoot th thead time title tr tt u ul var video wbr xmp annotation-xml foreignObject desc image"
)
TAGS = _TAGS.split()
URLS = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " \x01javascript:alert(1)",
    "java\tscript:alert(1)",
    "java&#10;script:alert(1)",
    "javascript&colon;alert(1)",
    "&#x6a;avascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:https://x",
    "//evil.example/x",
    "/relative",
    "?query",
    "#note",
    "https://ok.example/a?b=1&c=<2>",
    "http://ok.example/\"'",
    "mailto:me@ok.example",
    "tel:123",
    "https:evil",
    "http://[broken",
)
ATTRIBUTES = sorted(
    URL_ATTRIBUTES
    | URL_LISTS
    | {"title", "lang", "alt", "onclick", "class", "id", "name", "datetime", "start", "rel"}
)
TEXTS = (
    *("a", " ", "\n", "\n\n", "\r", "\t", "\0", "\x0c", "\xa0", "<", ">", "&", '"', "'", "=", "/", "`", "]]>", "-->"),
    *("<!--", "<![CDATA[", "<!DOCTYPE x>", "<?xml", "&lt;", "&amp;", "&amp;lt;", "&nbsp;", "&#0;", "&#x110000;", "&"),
    *("\ud7ff", "\ufffe", "é", "\u202e", "\u2028", "rock", "&lt;img src=x onerror=x&gt;", "</", "<a", "<p/", "\x85"),
)


def fragments(seed: int, count: int) -> Iterator[str]:
    """Fragments made of tags, attributes and texts, or mutated from the one before."""
    dice = random.Random(seed)
    before = ""
    for _ in range(count):
        if before and dice.random() < 0.4:
            before = _mutated(dice, before)
        else:
            before = "".join(_piece(dice) for _ in range(dice.randint(1, 12)))
        yield before


def _piece(dice: random.Random) -> str:
    kind = dice.random()
    if kind < 0.45:
        attributes = "".join(_attribute(dice) for _ in range(dice.choice((0, 0, 1, 1, 2))))
        return f"<{dice.choice(TAGS)}{attributes}{dice.choice(('>', '>', '>', '/>', ' '))}"
    if kind < 0.65:
        return f"</{dice.choice(TAGS)}>"
    return dice.choice(TEXTS)


def _attribute(dice: random.Random) -> str:
    quote = dice.choice(('"', '"', "'", ""))
    value = dice.choice(URLS) if dice.random() < 0.8 else dice.choice(TEXTS)
    return f"{dice.choice((' ', '/', chr(10)))}{dice.choice(ATTRIBUTES)}={quote}{value}{quote}"


def _mutated(dice: random.Random, text: str) -> str:
    at, to = sorted((dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)))
    match dice.randrange(5):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[:at] + _piece(dice) + text[at:]
        case 2:
            return (text[:to] + text[at:to] + text[to:])[:2000]
        case 3:
            return text[:at] + dice.choice(TEXTS) + text[at + 1 :]
        case _:
            return text[to:] + text[at:to] + text[:at]


def from_feed(html: str) -> str:
    """As an item of a feed keeps it."""
    return read_markup(html).html


def from_web_feed(html: str) -> str:
    """As an item of a web feed keeps it, with links made absolute."""
    return read_markup(html, "https://base.example/feed").html


def in_mail(html: str) -> str:
    """As a mail shows it."""
    try:
        return mail_html(html)
    except HtmlTooLargeError:
        return ""


def in_feed_file(html: str) -> str:
    """As a feed file shows it."""
    return _html(Item("Wire", "1", {"content:html": (html,)}), "content", None) or ""


def in_linked_feed_file(html: str) -> str:
    """As a feed file shows it if the item has a link."""
    return _html(Item("Wire", "1", {"content:html": (html,)}), "content", "https://base.example/item?a=1") or ""


CLEANERS: dict[str, Callable[[str], str]] = {
    function.__name__: function for function in (from_feed, from_web_feed, in_mail, in_feed_file, in_linked_feed_file)
}
RELATIVE = {"from_feed"}
"""What may contain relative links: without a base there is nothing that they could be joined to."""


class _Urls(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [(name, value or "") for name, value in attrs if name in URL_ATTRIBUTES | URL_LISTS]


def bad_urls(html: str, *, relative: bool) -> list[tuple[str, str]]:
    """The attributes whose URL a browser would not read as http, https or mailto."""
    reading = _Urls()
    reading.feed(html)
    reading.close()
    return [value for value in reading.found if not _is_good(*value, relative=relative)]


def _is_good(name: str, value: str, *, relative: bool) -> bool:
    read = re.sub(r"[\t\r\n]", "", value.strip("".join(map(chr, range(0x21)))))
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", read)
    if name in URL_LISTS:
        return False
    return relative if scheme is None else scheme[1].lower() in URL_SCHEMES


def main(count: int, seed: int) -> None:
    """Check fragments with all cleaners, and print what was found."""
    for name, clean in CLEANERS.items():
        started, changed, urls = time.process_time(), 0, 0
        for fragment in fragments(seed, count):
            cleaned = clean(fragment)
            if clean(cleaned) != cleaned:
                changed += 1
                print("CHANGED", name, repr(fragment), repr(cleaned), repr(clean(cleaned)), flush=True)
            if bad_urls(cleaned, relative=name in RELATIVE):
                urls += 1
                print("URL", name, repr(fragment), repr(cleaned), flush=True)
        took = time.process_time() - started
        print(f"{name}: {count:,} fragments, {changed} changed, {urls} bad URLs, {took:.0f} CPU-seconds", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
