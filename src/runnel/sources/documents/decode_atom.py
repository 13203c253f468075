"""Decodes Atom 1.0 and 0.3 to a wire document.

In: the root of the XML tree. Out: a WireDocument with the entries in document order.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from html import escape

from lxml import etree

from runnel.net.safe_links import join_base
from runnel.sources.documents.bounds import MAX_ITEMS, refuse_more_items
from runnel.sources.documents.extensions import (
    ATOM,
    ATOM_03,
    XML_BASE,
    XML_LANG,
    all_text,
    line_of,
    read_extension,
    split_name,
)
from runnel.sources.documents.wire import DocumentKind, TextForm, WireDocument, WireEntry, WireField

_RELATION = re.compile(r"[a-z][a-z-]{0,31}")


def decode_atom(root: etree._Element, name: str, max_items: int = MAX_ITEMS) -> WireDocument:
    """Decode a `feed` element, or an `entry` that is the root.

    >>> text = '<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title><entry><id>urn:1</id></entry></feed>'
    >>> decode_atom(etree.fromstring(text), "a.xml").entries[0].id
    'urn:1'
    """
    is_single_entry = split_name(root)[1] == "entry"
    entries = [root] if is_single_entry else [child for child in root if _local(child) == "entry"]
    refuse_more_items(len(entries), max_items, f"{name}:{line_of(root)}")
    head = {} if is_single_entry else _head(root)
    return WireDocument(
        kind=DocumentKind.ATOM,
        name=name,
        title=head.get("title"),
        description=head.get("subtitle") or head.get("tagline"),
        link=head.get("link"),
        language=None if is_single_entry else root.get(XML_LANG),
        base=None if is_single_entry else root.get(XML_BASE),
        entries=tuple(_entry(entry) for entry in entries),
    )


def _local(element: etree._Element) -> str:
    namespace, local = split_name(element)
    return local if namespace in (ATOM, ATOM_03) else ""


def _head(feed: etree._Element) -> dict[str, str]:
    head: dict[str, str] = {}
    for child in feed:
        local = _local(child)
        if local in ("title", "subtitle", "tagline"):
            head.setdefault(local, _construct(local, child).text.strip())
        elif local == "link" and (child.get("rel") or "alternate") == "alternate" and child.get("href"):
            head.setdefault("link", child.get("href") or "")
    return head


def _entry(entry: etree._Element) -> WireEntry:
    standard: list[WireField] = []
    extensions: list[WireField] = []
    identifier: str | None = None
    for child in entry:
        local = _local(child)
        if local == "id":
            identifier = identifier or all_text(child).strip()
        elif local:
            standard.extend(_fields(local, child))
        else:
            extensions.extend(read_extension(child))
    if entry.get(XML_LANG):
        standard.append(WireField("language", entry.get(XML_LANG) or ""))
    return WireEntry(identifier or None, line_of(entry), (*standard, *extensions), entry.get(XML_BASE))


def _fields(local: str, element: etree._Element) -> Iterator[WireField]:
    match local:
        case "title":
            yield _construct("title", element)
        case "summary":
            yield _construct("description", element)
        case "content":
            if element.get("src"):
                yield WireField("content:link", element.get("src") or "", TextForm.LINK, element.get(XML_BASE))
            else:
                yield _construct("content", element)
        case "published" | "issued" | "created":
            yield WireField("published", all_text(element), TextForm.DATE)
        case "updated" | "modified":
            yield WireField("updated", all_text(element), TextForm.DATE)
        case "author" | "contributor":
            yield from _person(local, element)
        case "category":
            yield WireField("category", element.get("label") or element.get("term") or all_text(element))
        case "link":
            yield from _link(element)
        case "source":
            title = next((child for child in element if _local(child) == "title"), None)
            if title is not None:
                yield _construct("source", title)
        case "rights":
            yield _construct("rights", element)
        case _:
            yield from read_extension(element)


def _person(local: str, element: etree._Element) -> Iterator[WireField]:
    for child in element:
        part = _local(child)
        if part == "name":
            yield WireField(local, all_text(child))
        elif part == "email":
            yield WireField(f"{local}:email", all_text(child))
        elif part in ("uri", "url"):
            yield WireField(f"{local}:link", all_text(child), TextForm.LINK, element.get(XML_BASE))
    if len(element) == 0:
        yield WireField(local, element.text or "")


def _link(element: etree._Element) -> Iterator[WireField]:
    relation = element.get("rel") or "alternate"
    base = element.get(XML_BASE)
    if relation == "alternate":
        yield WireField("link", element.get("href") or "", TextForm.LINK, base)
    elif relation == "enclosure":
        yield WireField("enclosure", element.get("href") or "", TextForm.LINK, base)
        yield WireField("enclosure:type", element.get("type") or "")
    elif relation == "replies":
        yield WireField("comments", element.get("href") or "", TextForm.LINK, base)
    elif _RELATION.fullmatch(relation):
        yield WireField(f"link:{relation}", element.get("href") or "", TextForm.LINK, base)


def _construct(name: str, element: etree._Element) -> WireField:
    """Read a text construct (RFC 4287 §3.1) or content of any type."""
    base = element.get(XML_BASE)
    kind = (element.get("type") or "text").strip().lower()
    mode = element.get("mode")
    if mode == "base64" or (mode is None and "/" in kind and not kind.startswith("text/") and not _is_xml(kind)):
        # Content that is neither a text nor a title, such as an image, is dropped.
        text = _decode_base64(all_text(element)) if name == "title" or kind.startswith("text/") else ""
        return WireField(name, text, TextForm.PLAIN if kind == "text/plain" else TextForm.MARKUP, base)
    if kind in ("xhtml", "application/xhtml+xml") or mode == "xml" or (_is_xml(kind) and len(element)):
        return WireField(name, _inner_html(element), TextForm.MARKUP, join_base(base, _first_base(element)))
    if kind in ("html", "text/html") or (mode == "escaped" and kind != "text/plain"):
        return WireField(name, all_text(element), TextForm.MARKUP, base)
    return WireField(name, all_text(element), TextForm.PLAIN, base)


def _is_xml(kind: str) -> bool:
    return kind.endswith(("+xml", "/xml"))


def _first_base(element: etree._Element) -> str | None:
    return element[0].get(XML_BASE) if len(element) else None


def _inner_html(element: etree._Element) -> str:
    """Return the content of an element as HTML, without namespaces, so that an HTML parser understands it."""
    parts = [escape(element.text or "", quote=False)]
    for child in element:
        local = split_name(child)[1]
        attributes = "".join(f' {key}="{escape(value)}"' for key, value in _plain_attributes(child))
        parts.append(f"<{local}{attributes}>{_inner_html(child)}</{local}>{escape(child.tail or '', quote=False)}")
    return "".join(parts)


def _plain_attributes(element: etree._Element) -> Iterator[tuple[str, str]]:
    for key, value in element.attrib.items():
        if not str(key).startswith("{"):
            yield str(key), str(value)


def _decode_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=False).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""
