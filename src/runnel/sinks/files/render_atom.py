"""Atom 1.0 files (RFC 4287): render entries, and read the entries of our own files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lxml import etree

from runnel.sinks.files.feed_entries import GENERATOR, NAMESPACE, FeedEntry, FeedHead, ForeignFileError, ShownItem
from runnel.sinks.files.render_xml import add, add_mark, parse_own, read_entries, upgrade_address, write_document
from runnel.sinks.files.valid_texts import has_markup, html_of, language, plain_text

_ATOM = "http://www.w3.org/2005/Atom"
_NAMESPACES: dict[Any, str] = {None: _ATOM, "runnel": NAMESPACE}
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Atom:
    """Atom 1.0."""

    def read(self, data: bytes) -> list[FeedEntry]:
        """Read the entries of a file of ours."""
        root = parse_own(data, _tag("feed"))
        if root.findtext(_tag("generator")) != GENERATOR:
            raise ForeignFileError
        return read_entries(iter(root.findall(_tag("entry"))), _tag("id"), _upgrade)

    def entry(self, shown: ShownItem) -> FeedEntry:
        """Create an entry."""
        node = etree.Element(_tag("entry"), nsmap=_NAMESPACES)
        if shown.language:
            node.set(_LANGUAGE, shown.language)
        add(node, _tag("id"), shown.id)
        _add_text(node, "title", shown.title)
        add(node, _tag("updated"), shown.updated.isoformat())
        if shown.published:
            add(node, _tag("published"), shown.published.isoformat())
        if shown.link:
            add(node, _tag("link"), rel="alternate", href=shown.link)
        if shown.enclosure:
            add(node, _tag("link"), rel="enclosure", href=shown.enclosure, type=shown.enclosure_type)
        for author in shown.authors or (shown.source,):
            add(add(node, _tag("author")), _tag("name"), author)
        for category in shown.categories:
            add(node, _tag("category"), term=category)
        content = shown.content
        if content is None and shown.link is None:
            # RFC 4287 §4.1.2: an entry without an alternate link must have content.
            content = shown.summary or html_of(shown.title)
        if shown.summary and shown.summary != content:
            add(node, _tag("summary"), shown.summary, type="html")
        if content:
            add(node, _tag("content"), content, type="html")
        add_mark(node, shown)
        return FeedEntry(shown.id, shown.version, shown.sequence, node)

    def render(self, head: FeedHead, entries: Sequence[FeedEntry]) -> bytes:
        """Render the whole document."""
        root = etree.Element(_tag("feed"), nsmap=_NAMESPACES)
        add(root, _tag("id"), head.id)
        _add_text(root, "title", head.title)
        _add_text(root, "subtitle", head.description)
        add(root, _tag("updated"), head.updated.isoformat())
        if head.address:
            add(root, _tag("link"), rel="self", href=head.address, type="application/atom+xml")
        add(root, _tag("generator"), GENERATOR)
        for entry in entries:
            root.append(entry.node)
        return write_document(root)


def _add_text(parent: etree._Element, local: str, text: str) -> None:
    """Add a text construct. Text that looks like markup is escaped and declared as HTML, so that readers show it."""
    if has_markup(text):
        add(parent, _tag(local), html_of(text), type="html")
    else:
        add(parent, _tag(local), text, type="text")


def _upgrade(node: etree._Element) -> None:
    """Repair an entry of an early version of Runnel, which did not follow all rules of validators."""
    title = node.find(_tag("title"))
    shown = "" if title is None else title.text or ""
    if title is not None and title.get("type") == "text" and has_markup(shown):
        title.text = html_of(shown)
        title.set("type", "html")
    if language(node.get(_LANGUAGE) or "") is None:
        node.attrib.pop(_LANGUAGE, "")
    for link in node.findall(_tag("link")):
        upgrade_address(link, "href")
    for name in node.findall(f"{_tag('author')}/{_tag('name')}"):
        name.text = plain_text(name.text or "") or GENERATOR
    has_link = any(link.get("rel") == "alternate" for link in node.findall(_tag("link")))
    if not has_link and node.find(_tag("content")) is None:
        summary = node.find(_tag("summary"))
        if summary is not None:
            summary.tag = _tag("content")
        else:
            add(node, _tag("content"), html_of(shown), type="html")


def _tag(local: str) -> str:
    return f"{{{_ATOM}}}{local}"
