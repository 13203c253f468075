"""Reads the head of a feed document: hints for polling and links of the feed, before the first entry.

In: the bytes of a document. Out: a DocumentHead. Every value is limited, and invalid values are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lxml import etree

DAY = 86_400.0
MAX_LINKS = 64
_HEAD_BYTES = 64 << 10
_NUMBER = re.compile(r"\d{1,12}")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True, slots=True)
class DocumentHead:
    """The polling hints and links of a feed document.

    `ttl` is in seconds. In `skip_hours` (UTC) and on `skip_days` (0 is Monday), the publisher expects no polls.
    `links` are pairs of relation and address, such as that of a WebSub hub.
    """

    ttl: float = 0.0
    skip_hours: tuple[int, ...] = ()
    skip_days: tuple[int, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


NO_HEAD = DocumentHead()
"""The head of a document without hints and links."""


def read_head(data: bytes) -> DocumentHead:
    """Read the head of an XML document. For other formats and broken documents, the result is empty or partial.

    >>> read_head(b"<rss><channel><ttl>60</ttl><skipHours><hour>3</hour></skipHours><item/></channel></rss>")
    DocumentHead(ttl=3600.0, skip_hours=(3,), skip_days=(), links=())
    """
    start = data[:_HEAD_BYTES].lstrip()
    if not start.lstrip(b"\xef\xbb\xbf\xfe\xff\0").startswith(b"<"):
        return DocumentHead()
    parser = etree.XMLPullParser(
        events=("start", "end"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        recover=True,
    )
    builder = _HeadBuilder()
    try:
        parser.feed(start)
        for event, element in parser.read_events():
            if isinstance(element, etree._Element) and not builder.add(event, element):
                break
    except (etree.XMLSyntaxError, ValueError):
        pass
    return builder.head()


class _HeadBuilder:
    """Collects the head from parser events, up to the first entry."""

    def __init__(self) -> None:
        self._ttl = 0.0
        self._hours: set[int] = set()
        self._days: set[int] = set()
        self._links: list[tuple[str, str]] = []

    def add(self, event: str, element: etree._Element) -> bool:
        """Process a parser event. Return False at the first entry, where the head ends."""
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
                self._add_link(element)
        return True

    def _add_link(self, element: etree._Element) -> None:
        address = element.get("href")
        if address and len(self._links) < MAX_LINKS:
            self._links.extend((relation.lower(), address) for relation in (element.get("rel") or "").split()[:8])

    def head(self) -> DocumentHead:
        # Ignore a feed that skips every hour or every day, because it would never be polled.
        hours = self._hours if len(self._hours) < 24 else set[int]()
        days = self._days if len(self._days) < 7 else set[int]()
        return DocumentHead(self._ttl, tuple(sorted(hours)), tuple(sorted(days)), tuple(self._links[:MAX_LINKS]))


def whole_number(text: str | None) -> int | None:
    """Parse a non-negative integer of at most 12 digits, or return None."""
    match = _NUMBER.fullmatch((text or "").strip())
    return int(match[0]) if match else None
