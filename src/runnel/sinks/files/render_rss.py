"""RSS 2.0 files: entries to a document, and our own document back to entries."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import format_datetime

from lxml import etree

from runnel.sinks.files.feed_entries import GENERATOR, NAMESPACE, FeedEntry, FeedHead, ForeignFileError, ShownItem
from runnel.sinks.files.render_xml import add, add_mark, parse_own, read_entries, write_document

_CONTENT = "http://purl.org/rss/1.0/modules/content/"
_DC = "http://purl.org/dc/elements/1.1/"
_NAMESPACES = {"content": _CONTENT, "dc": _DC, "runnel": NAMESPACE}


class Rss:
    """RSS 2.0 with Dublin Core authors and content:encoded."""

    def read(self, data: bytes) -> list[FeedEntry]:
        """The entries of a file of ours."""
        channel = parse_own(data, "rss").find("channel")
        if channel is None or channel.findtext("generator") != GENERATOR:
            raise ForeignFileError
        return read_entries(iter(channel.findall("item")), "guid")

    def entry(self, shown: ShownItem) -> FeedEntry:
        """A new entry."""
        node = etree.Element("item", nsmap=_NAMESPACES)
        add(node, "title", shown.title)
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
        """The whole document."""
        root = etree.Element("rss", {"version": "2.0"}, nsmap=_NAMESPACES)
        channel = add(root, "channel")
        add(channel, "title", head.title)
        add(channel, "link", head.id)
        add(channel, "description", head.description)
        add(channel, "lastBuildDate", format_datetime(head.updated))
        add(channel, "generator", GENERATOR)
        for entry in entries:
            channel.append(entry.node)
        return write_document(root)
