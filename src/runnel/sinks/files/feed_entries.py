"""Entries: the common part of the three feed formats.

In: a delivered item. Out: `ShownItem`, its presentation to readers, safe for XML and HTML whatever the item contains.
`merge` combines new entries with those of an existing file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from runnel.model.annotation import JoinedItems
from runnel.model.bindings import NO_BINDINGS, Binding, Bindings
from runnel.model.item import Item
from runnel.net.safe_html import HtmlCleaner, settle
from runnel.sinks.contract import DeliveredItem, Delivery
from runnel.sinks.files.valid_texts import (
    feed_id,
    file_address,
    html_of,
    language,
    media_type,
    plain_text,
    web_address,
    xml_text,
)

GENERATOR = "Runnel"
NAMESPACE = "https://runnel.example/ns/feed/1"
"""The XML namespace of Runnel's additions to an entry. Runnel recognizes its own files by it."""

_MOST_TAGS = 2000
_MOST_LABELS = 50
_LONGEST_LABEL = 200
MOST_JOINED = 20
"""Maximum number of joined items that an entry shows for each join."""

_LONGEST_TITLE = 1000
_LONGEST_TEXT = 1 << 18
_UNKNOWN_TYPE = "application/octet-stream"
_CLEANER = HtmlCleaner()


_RELATIVE = re.compile(r"(?:href|src|cite)\s*=\s*[\"']?\s*(?!https?:|mailto:)", re.IGNORECASE)


class ForeignFileError(Exception):
    """An existing file that Runnel did not write."""


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """An entry of a feed file: its id, the item version that it shows, and its node in the format."""

    id: str
    version: int
    sequence: int
    node: Any


@dataclass(frozen=True, slots=True)
class FeedHead:
    """The metadata of a feed."""

    id: str
    title: str
    description: str
    updated: datetime
    address: str | None = None
    """The public URL of the file, if known."""


class FeedFormat(Protocol):
    """A format of feed files."""

    def read(self, data: bytes) -> list[FeedEntry]:
        """Read the entries of a file that Runnel wrote. Raise ForeignFileError for other files."""

    def entry(self, shown: ShownItem) -> FeedEntry:
        """Create an entry."""

    def render(self, head: FeedHead, entries: Sequence[FeedEntry]) -> bytes:
        """Render the whole document."""


@dataclass(frozen=True, slots=True)
class ShownItem:
    """The presentation of an item to readers."""

    id: str
    feed: str
    item: str
    version: int
    sequence: int
    title: str
    link: str | None
    summary: str | None
    content: str | None
    authors: tuple[str, ...]
    categories: tuple[str, ...]
    language: str | None
    published: datetime | None
    updated: datetime
    enclosure: str | None
    enclosure_type: str
    source: str
    bindings: Bindings = NO_BINDINGS
    annotations: tuple[ShownAnnotation, ...] = ()
    omitted: int = 0
    """The number of attributes that a joined item left out."""


@dataclass(frozen=True, slots=True)
class ShownAnnotation:
    """The presentation of the items that an item joined: the newest of them, and the number of all."""

    name: str
    items: tuple[ShownItem, ...]
    count: int


def entry_id(item: Item) -> str:
    """Return the id of an item in feed files: the same for all its versions, and different for items of different
    feeds.

    >>> entry_id(Item("News", "1", {})) == entry_id(Item("News", "1", {}, version=2))
    True
    >>> entry_id(Item("News", "1", {})) == entry_id(Item("Blog", "1", {}))
    False
    """
    key = f"{len(item.feed)}:{item.feed}{item.id}".encode("utf-8", "replace")
    return f"urn:runnel:{hashlib.blake2b(key, digest_size=16).hexdigest()}"


def show(delivered: DeliveredItem, sent: datetime) -> ShownItem:
    """Return the presentation of a delivered item. `summary` and `content` are HTML."""
    item = delivered.item
    published = _moment(item, "published")
    link = next(filter(None, map(web_address, _texts(item, "link"))), None)
    return ShownItem(
        id=entry_id(item),
        feed=xml_text(item.feed),
        item=xml_text(item.id),
        version=item.version,
        sequence=item.sequence or 0,
        title=_title(item),
        link=link,
        summary=_html(item, "description", link),
        content=_html(item, "content", link),
        authors=_labels(item, "author"),
        categories=_labels(item, "category"),
        language=next(filter(None, map(language, _labels(item, "language"))), None),
        published=published,
        updated=_moment(item, "updated") or published or item.time or sent,
        enclosure=next(filter(None, map(web_address, _texts(item, "enclosure"))), None),
        enclosure_type=next(filter(None, map(media_type, _labels(item, "enclosure:type"))), _UNKNOWN_TYPE),
        source=" ".join(plain_text(xml_text(delivered.feed_title)).split()) or GENERATOR,
        bindings=_readable(delivered.bindings),
        annotations=tuple(_show_joined(joined, sent) for joined in delivered.annotations),
    )


def _show_joined(joined: JoinedItems, sent: datetime) -> ShownAnnotation:
    items = (
        replace(show(DeliveredItem(item, item.feed), sent), omitted=joined.omitted_from(item))
        for item in joined.items[:MOST_JOINED]
    )
    return ShownAnnotation(xml_text(joined.name), tuple(items), joined.count)


def head_of(delivery: Delivery) -> FeedHead:
    """Return the head of a delivery's feed. Its id is its URL, or derived from its name if the URL is unknown."""
    name = " ".join(xml_text(delivery.feed_name).split())
    address = file_address(delivery.out_url, delivery.subscription.target)
    return FeedHead(
        id=address or feed_id(delivery.feed_name),
        title=" ".join(xml_text(delivery.feed_title).split()) or name or GENERATOR,
        description=f"Items of the feed {name}, as matched by {GENERATOR}",
        updated=delivery.sent,
        address=address,
    )


def merge(present: Iterable[FeedEntry], arriving: Iterable[FeedEntry], most: int) -> list[FeedEntry]:
    """Return the newest entries of both lists, newest first, with the latest version per id."""
    latest: dict[str, FeedEntry] = {}
    for entry in (*present, *arriving):
        other = latest.get(entry.id)
        if other is None or (entry.version, entry.sequence) > (other.version, other.sequence):
            latest[entry.id] = entry
    return sorted(latest.values(), key=lambda entry: (-entry.sequence, entry.id))[: max(most, 1)]


def _title(item: Item) -> str:
    title = next(iter(_texts(item, "title")), None)
    if title is None:
        title = next(iter(_texts(item, "description")), "") or next(iter(_texts(item, "content")), "")
        title = title if len(title) <= 80 else f"{title[:79]}…"
    return " ".join(title.split())[:_LONGEST_TITLE] or xml_text(item.id).strip()[:200] or "(untitled)"


def _texts(item: Item, name: str) -> list[str]:
    texts = (xml_text(value).strip() for value in item.attributes.get(name, ()) if isinstance(value, str))
    return [text for text in texts if text]


def _labels(item: Item, name: str) -> tuple[str, ...]:
    """Return short texts. A feed file is for readers; the complete item is in the log."""
    labels = (" ".join(plain_text(text[:_LONGEST_LABEL]).split()) for text in _texts(item, name)[:_MOST_LABELS])
    return tuple(dict.fromkeys(filter(None, labels)))


def _moment(item: Item, name: str) -> datetime | None:
    value = item.first(name)
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _html(item: Item, name: str, base: str | None) -> str | None:
    """Return an attribute as HTML for readers. HTML is cleaned again here, because items come from untrusted sources.

    Relative URLs are joined to the item's URL, or removed if the item has none.
    """
    html = "".join(_texts(item, f"{name}:html"))
    # Cleaning takes more than linear time for deeply nested elements, so only their text is shown.
    if html and len(html) <= _LONGEST_TEXT and html.count("<") <= _MOST_TAGS:
        cleaner = _CLEANER
        if base is not None and _RELATIVE.search(html):
            cleaner = HtmlCleaner(base=base)
        cleaned = settle(lambda html: xml_text(cleaner.clean(html)).strip(), html)
        if cleaned:
            return cleaned
    text = "\n\n".join(_texts(item, name))[:_LONGEST_TEXT]
    return html_of(text).replace("\n", "<br>\n") if text else None


def _readable(bindings: Bindings) -> Bindings:
    """Return bindings with texts that are valid in XML and short enough for readers."""
    return NO_BINDINGS if bindings.is_empty else replace(bindings, rows=tuple(map(_readable_row, bindings.rows)))


def _readable_row(row: Binding) -> Binding:
    return {
        xml_text(name): xml_text(value)[:_LONGEST_TITLE] if isinstance(value, str) else value
        for name, value in row.items()
    }
