"""XML code shared by RSS and Atom files: read our own files and write XML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lxml import etree

from runnel.sinks.files.feed_entries import NAMESPACE, FeedEntry, ForeignFileError, ShownItem
from runnel.sinks.files.valid_texts import media_type, plain_text, web_address, xml_text
from runnel.sinks.show_bindings import kind_of, printed

_OLD_NAMESPACE = "urn:runnel:feed/1"
"""The namespace in files of early versions of Runnel. It is not a valid URN."""

_MARK = f"{{{NAMESPACE}}}entry"
_OWN = f"{{{{{NAMESPACE}}}}}{{}}"
_BINDINGS, _ROW, _BINDING, _ANNOTATIONS = map(_OWN.format, ("bindings", "row", "binding", "annotations"))


def parse_own(data: bytes, root_tag: str) -> etree._Element:
    """Parse a file of ours and return its root element.

    Raise ForeignFileError if it is not XML, has another root, or contains a document type.
    """
    if b"<!DOCTYPE" in data[:4096]:
        raise ForeignFileError
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, recover=False)
    try:
        root: etree._Element = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise ForeignFileError from error
    if root.tag != root_tag:
        raise ForeignFileError
    return root


def read_entries(
    nodes: Iterator[etree._Element], id_tag: str, upgrade: Callable[[etree._Element], None]
) -> list[FeedEntry]:
    """Read the entries, upgrading those of an older form. An entry without our namespace makes the file foreign."""
    entries = []
    for node in nodes:
        if node.find(f"{{{_OLD_NAMESPACE}}}entry") is not None:
            node = _with_current_marks(node)
            upgrade(node)
        mark = node.find(_MARK)
        identifier = node.findtext(id_tag)
        if mark is None or not identifier:
            raise ForeignFileError
        try:
            version, sequence = int(mark.get("version") or ""), int(mark.get("sequence") or "")
        except ValueError as error:
            raise ForeignFileError from error
        node.tail = None
        entries.append(FeedEntry(str(identifier), version, sequence, node))
    return entries


def _with_current_marks(node: etree._Element) -> etree._Element:
    """Return a copy of an entry with its marks in the current namespace, without the old one."""
    spaces: dict[Any, str] = {
        prefix: NAMESPACE if uri == _OLD_NAMESPACE else uri for prefix, uri in node.nsmap.items()
    }
    copy = etree.Element(node.tag, {str(key): str(value) for key, value in node.items()}, nsmap=spaces)
    copy.text = node.text
    for child in node:
        copy.append(child)
    for element in copy.iter(f"{{{_OLD_NAMESPACE}}}*"):
        element.tag = f"{{{NAMESPACE}}}{etree.QName(element).localname}"
    for element in copy.iter():
        if isinstance(element.tag, str) and element.text is not None:
            element.text = xml_text(element.text)
    etree.cleanup_namespaces(copy, keep_ns_prefixes=[prefix for prefix in spaces if prefix])
    return copy


def upgrade_text(element: etree._Element | None, repair: Callable[[str], str | None]) -> None:
    """Repair the text of an element. Remove the element if no text is left."""
    if element is not None:
        element.text = repair(element.text or "")
        if not element.text:
            _remove(element)


def upgrade_address(element: etree._Element | None, attribute: str) -> None:
    """Repair the URL in an attribute and its media type. Remove the element if the URL is not valid."""
    if element is None:
        return
    address = web_address(element.get(attribute) or "")
    if address is None:
        _remove(element)
        return
    element.set(attribute, address)
    kind = element.get("type")
    if kind is not None and media_type(kind) is None:
        element.set("type", "application/octet-stream")


def _remove(element: etree._Element) -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def add(parent: etree._Element, tag: str, text: str | None = None, **attributes: str) -> etree._Element:
    """Append a child element."""
    child = etree.SubElement(parent, tag, attributes)
    child.text = text
    return child


def add_mark(node: etree._Element, shown: ShownItem) -> None:
    """Record in an entry which item version it shows, and the bindings and annotations of the match."""
    add(
        node,
        _MARK,
        feed=shown.feed,
        item=shown.item,
        version=str(shown.version),
        sequence=str(shown.sequence),
    )
    if not shown.bindings.is_empty:
        more = {"more": str(shown.bindings.more)} if shown.bindings.more else {}
        more |= {} if shown.bindings.is_whole else {"incomplete": "true"}
        listed = add(node, _BINDINGS, **more)
        for row in shown.bindings.rows:
            group = add(listed, _ROW)
            for name, value in row.items():
                add(group, _BINDING, printed(value), name=name, type=kind_of(value))
    for annotation in shown.annotations:
        joined = add(node, _ANNOTATIONS, name=annotation.name, count=str(annotation.count))
        for item in annotation.items:
            _add_joined(joined, item)


def _add_joined(parent: etree._Element, item: ShownItem) -> None:
    """Add a joined item. Its elements have our namespace, so that readers do not take it for an entry of the feed.

    As in RSS, the title is plain text, and description and content are HTML.
    """
    omitted = {"omitted": str(item.omitted)} if item.omitted else {}
    node = add(parent, _OWN.format("item"), feed=item.feed, item=item.item, version=str(item.version), **omitted)
    texts = {
        "title": plain_text(item.title),
        "link": item.link,
        "description": item.summary,
        "content": item.content,
        "published": item.published.isoformat() if item.published else None,
        "source": item.source,
    }
    for name, text in texts.items():
        if text:
            add(node, _OWN.format(name), text)
    for name, labels in (("author", item.authors), ("category", item.categories)):
        for label in labels:
            add(node, _OWN.format(name), label)
    if item.enclosure:
        add(node, _OWN.format("enclosure"), url=item.enclosure, type=item.enclosure_type)


def write_document(root: etree._Element) -> bytes:
    """Serialize the document, with one element per line where this does not change the content."""
    etree.indent(root, space=" ")
    data: bytes = etree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"
