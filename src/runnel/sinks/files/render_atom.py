"""Atom 1.0 files (RFC 4287): entries to a document, and our own document back to entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lxml import etree

from runnel.sinks.files.feed_entries import GENERATOR, NAMESPACE, FeedEntry, FeedHead, ForeignFileError, ShownItem
from runnel.sinks.files.render_xml import add, add_mark, parse_own, read_entries, write_document

_ATOM = "http://www.w3.org/2005/Atom"
_NAMESPACES: dict[Any, str] = {None: _ATOM, "runnel": NAMESPACE}
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Atom:
    """Atom 1.0."""

    def read(self, data: bytes) -> list[FeedEntry]:
        """The entries of a file of ours."""
        root = parse_own(data, _tag("feed"))
        if root.findtext(_tag("generator")) != GENERATOR:
            raise ForeignFileError
        return read_entries(iter(root.findall(_tag("entry"))), _tag("id"))

    def entry(self, shown: ShownItem) -> FeedEntry:
        """A new entry."""
        node = etree.Element(_tag("entry"), nsmap=_NAMESPACES)
        if shown.language and len(shown.language) <= 35 and shown.language.replace("-", "").isalnum():
            node.set(_LANGUAGE, shown.language)
        add(node, _tag("id"), shown.id)
        add(node, _tag("title"), shown.title, type="text")
        add(node, _tag("updated"), shown.updated.isoformat())
        if shown.published:
            add(node, _tag("published"), shown.published.isoformat())
        if shown.link:
            add(node, _tag("link"), rel="alternate", href=shown.link)
        if shown.enclosure:
            add(node, _tag("link"), rel="enclosure", href=shown.enclosure, type=shown.enclosure_type)
        for author in shown.authors or (shown.source,):
            add(add(node, _tag("author")), _tag("name"), author or GENERATOR)
        for category in shown.categories:
            add(node, _tag("category"), term=category)
        if shown.summary:
            add(node, _tag("summary"), shown.summary, type="html")
        if shown.content:
            add(node, _tag("content"), shown.content, type="html")
        add_mark(node, shown)
        return FeedEntry(shown.id, shown.version, shown.sequence, node)

    def render(self, head: FeedHead, entries: Sequence[FeedEntry]) -> bytes:
        """The whole document."""
        root = etree.Element(_tag("feed"), nsmap=_NAMESPACES)
        add(root, _tag("id"), head.id)
        add(root, _tag("title"), head.title, type="text")
        add(root, _tag("subtitle"), head.description, type="text")
        add(root, _tag("updated"), head.updated.isoformat())
        add(root, _tag("generator"), GENERATOR)
        for entry in entries:
            root.append(entry.node)
        return write_document(root)


def _tag(local: str) -> str:
    return f"{{{_ATOM}}}{local}"
