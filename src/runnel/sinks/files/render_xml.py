"""What RSS and Atom files share: reading our own file back, and writing XML."""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from runnel.sinks.files.feed_entries import NAMESPACE, FeedEntry, ForeignFileError, ShownItem
from runnel.sinks.show_bindings import kind_of, printed

_MARK = f"{{{NAMESPACE}}}entry"
_BINDINGS, _ROW, _BINDING = (f"{{{NAMESPACE}}}{local}" for local in ("bindings", "row", "binding"))


def parse_own(data: bytes, root_tag: str) -> etree._Element:
    """The root of a file of ours; ForeignFile where it is not XML, has another root, or declares anything."""
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


def read_entries(nodes: Iterator[etree._Element], id_tag: str) -> list[FeedEntry]:
    """The entries with our mark; one without it makes the file a foreign one."""
    entries = []
    for node in nodes:
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


def add(parent: etree._Element, tag: str, text: str | None = None, **attributes: str) -> etree._Element:
    """A new last child."""
    child = etree.SubElement(parent, tag, attributes)
    child.text = text
    return child


def add_mark(node: etree._Element, shown: ShownItem) -> None:
    """Add which item, in which version, an entry shows, and the bindings with which it matched."""
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


def write_document(root: etree._Element) -> bytes:
    """The document as bytes, one element a line where that changes nothing."""
    etree.indent(root, space=" ")
    data: bytes = etree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"
