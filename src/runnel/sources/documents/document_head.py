"""The head of a feed's document: what it says before its first entry about when and where to ask for news.

In: the bytes of a document. Out: a DocumentHead. Every value is bounded, and nonsense counts as nothing said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lxml import etree

DAY = 86_400.0
MAX_LINKS = 64
_HEAD_BYTES = 64 << 10
_SECONDS = re.compile(r"\d{1,12}")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True)
class DocumentHead:
    """What a feed's document says before its first entry.

    `ttl` is in seconds; `skip_hours` (of UTC) and `skip_days` (0 is Monday) are times at which nothing new is to be
    expected; `links` are pairs of relation and address, such as those of a WebSub hub.
    """

    ttl: float = 0.0
    skip_hours: tuple[int, ...] = ()
    skip_days: tuple[int, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


NO_HEAD = DocumentHead()
"""Of a document that says nothing before its entries."""


def read_head(data: bytes) -> DocumentHead:
    """The head of a document in XML; a document of another kind, or a broken one, says nothing.

    >>> read_head(b"<rss><channel><ttl>60</ttl><skipHours><hour>3</hour></skipHours><item/></channel></rss>")
    DocumentHead(ttl=3600.0, skip_hours=(3,), skip_days=(), links=())
    """
    beginning = data[:_HEAD_BYTES].lstrip()
    if not beginning.lstrip(b"\xef\xbb\xbf\xfe\xff\0").startswith(b"<"):
        return DocumentHead()
    parser = etree.XMLPullParser(
        events=("start", "end"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        recover=True,
    )
    found = _Gathered()
    try:
        parser.feed(beginning)
        for event, element in parser.read_events():
            if isinstance(element, etree._Element) and not found.take(event, element):
                break
    except (etree.XMLSyntaxError, ValueError):
        pass
    return found.head()


class _Gathered:
    """What was found so far on the way to the first entry."""

    def __init__(self) -> None:
        self._ttl = 0.0
        self._hours: set[int] = set()
        self._days: set[int] = set()
        self._links: list[tuple[str, str]] = []

    def take(self, event: str, element: etree._Element) -> bool:
        """Look at an element; False at the first entry, where the head ends."""
        if not isinstance(element.tag, str):
            return True
        local = etree.QName(element).localname
        if event == "start":
            return local not in ("item", "entry")
        match local:
            case "ttl":
                minutes = whole_number(element.text)
                self._ttl = self._ttl or min((minutes or 0) * 60.0, DAY)
            case "hour":
                hour = whole_number(element.text)
                if hour is not None and hour <= 24:
                    self._hours.add(hour % 24)  # RSS 0.91 counts from 1 to 24
            case "day":
                name = (element.text or "").strip().lower()
                if name in _WEEKDAYS:
                    self._days.add(_WEEKDAYS.index(name))
            case "link":
                self._take_link(element)
        return True

    def _take_link(self, element: etree._Element) -> None:
        address = element.get("href")
        if address and len(self._links) < MAX_LINKS:
            self._links.extend((one.lower(), address) for one in (element.get("rel") or "").split()[:8])

    def head(self) -> DocumentHead:
        # A feed that skips every hour, or every day, would never be read.
        hours = self._hours if len(self._hours) < 24 else set[int]()
        days = self._days if len(self._days) < 7 else set[int]()
        return DocumentHead(self._ttl, tuple(sorted(hours)), tuple(sorted(days)), tuple(self._links[:MAX_LINKS]))


def whole_number(text: str | None) -> int | None:
    found = _SECONDS.fullmatch((text or "").strip())
    return int(found[0]) if found else None
