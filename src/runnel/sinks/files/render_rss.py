"""RSS 2.0 files: render entries, and read the entries of our own files."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import format_datetime

from lxml import etree

from runnel.sinks.contract import Delivery
from runnel.sinks.files.feed_entries import (
    GENERATOR,
    NAMESPACE,
    FeedEntry,
    FeedHead,
    ForeignFileError,
    ShownItem,
    head_of,
    show,
)
from runnel.sinks.files.render_xml import (
    add,
    add_mark,
    parse_own,
    read_entries,
    upgrade_address,
    upgrade_text,
    write_document,
)
from runnel.sinks.files.valid_texts import language, plain_text, web_address

_CONTENT = "http://purl.org/rss/1.0/modules/content/"
_DC = "http://purl.org/dc/elements/1.1/"
_ATOM = "http://www.w3.org/2005/Atom"
_NAMESPACES = {"atom": _ATOM, "content": _CONTENT, "dc": _DC, "runnel": NAMESPACE}


class Rss:
    """RSS 2.0 with Dublin Core authors and content:encoded."""

    def read(self, data: bytes) -> list[FeedEntry]:
        """Read the entries of a file of ours."""
        channel = parse_own(data, "rss").find("channel")
        if channel is None or channel.findtext("generator") != GENERATOR:
            raise ForeignFileError
        return read_entries(iter(channel.findall("item")), "guid", _upgrade)

    def entry(self, shown: ShownItem) -> FeedEntry:
        """Create an entry."""
        node = etree.Element("item", nsmap=_NAMESPACES)
        add(node, "title", _title(shown.title, shown.item))
        if shown.link:
            add(node, "link", shown.link)
        add(node, "guid", shown.id, isPermaLink="false")
        if shown.published:
            add(node, "pubDate", format_datetime(shown.published))
        if shown.summary or shown.content:
            add(node, "description", shown.summary or shown.content)
        if shown.summary and shown.content:
            add(node, f"{{{_CONTENT}}}encoded", shown.content)
        for author in shown.authors:
            add(node, f"{{{_DC}}}creator", author)
        for category in shown.categories:
            add(node, "category", category)
        if shown.language:
            add(node, f"{{{_DC}}}language", shown.language)
        if shown.enclosure:
            add(node, "enclosure", url=shown.enclosure, length="0", type=shown.enclosure_type)
        add_mark(node, shown)
        return FeedEntry(shown.id, shown.version, shown.sequence, node)

    def render(self, head: FeedHead, entries: Sequence[FeedEntry]) -> bytes:
        """Render the whole document."""
        root = etree.Element("rss", {"version": "2.0"}, nsmap=_NAMESPACES)
        channel = add(root, "channel")
        add(channel, "title", _title(head.title, GENERATOR))
        add(channel, "link", head.id)
        add(channel, "description", plain_text(head.description))
        if head.address:
            add(channel, f"{{{_ATOM}}}link", rel="self", href=head.address, type="application/rss+xml")
        add(channel, "lastBuildDate", format_datetime(head.updated))
        add(channel, "generator", GENERATOR)
        for entry in entries:
            channel.append(entry.node)
        return write_document(root)


def _title(text: str, instead: str) -> str:
    """Return a title as plain text. RSS cannot declare markup in titles."""
    return plain_text(text) or plain_text(instead) or "(untitled)"


def _upgrade(node: etree._Element) -> None:
    """Repair an entry of an early version of Runnel, which did not follow all rules of validators."""
    upgrade_text(node.find("title"), lambda text: _title(text, ""))
    upgrade_text(node.find("link"), web_address)
    upgrade_text(node.find(f"{{{_DC}}}language"), language)
    for label in [*node.findall("category"), *node.findall(f"{{{_DC}}}creator")]:
        upgrade_text(label, plain_text)
    upgrade_address(node.find("enclosure"), "url")


def rss_document(delivery: Delivery) -> bytes:
    """Render a message as an RSS 2.0 document, newest item first. This is the input of stylesheets."""
    form = Rss()
    entries = [form.entry(show(item, delivery.sent)) for item in reversed(delivery.items)]
    return form.render(head_of(delivery), entries)
