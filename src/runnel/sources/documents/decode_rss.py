"""Decodes RSS 0.90 to 2.0, including RSS 1.0 (RDF), to a wire document.

In: the root of the XML tree. Out: a WireDocument with the entries in document order. All dialects are decoded in the
same way. A missing or unknown element is never an error; unknown elements become extensions.
"""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree

from runnel.errors import BrokenDocumentError
from runnel.net.safe_links import join_base
from runnel.sources.documents.bounds import MAX_ITEMS, refuse_more_items
from runnel.sources.documents.extensions import (
    ATOM,
    PREFIXES,
    RDF,
    RSS,
    XML_BASE,
    XML_LANG,
    all_text,
    line_of,
    read_extension,
    split_name,
)
from runnel.sources.documents.wire import DocumentKind, TextForm, WireDocument, WireEntry, WireField

_HEAD = frozenset({"title", "description", "link", "language"})
_ABOUT = f"{{{RDF}}}about"


def decode_rss(root: etree._Element, name: str, max_items: int = MAX_ITEMS) -> WireDocument:
    """Decode an `rss` or `rdf:RDF` element.

    >>> root = etree.fromstring("<rss><channel><title>T</title><item><guid>1</guid></item></channel></rss>")
    >>> decode_rss(root, "a.xml").entries[0].id
    '1'
    """
    kind = DocumentKind.RDF if split_name(root)[0] == RDF else DocumentKind.RSS
    channel = _channel(root)
    items = rss_items(root)
    refuse_more_items(len(items), max_items, f"{name}:{line_of(root)}")
    if channel is None and not items:
        raise BrokenDocumentError("the feed has neither a channel nor items", place=f"{name}:{line_of(root)}")
    head = {} if channel is None else _head(channel)
    base = join_base(root.get(XML_BASE), None if channel is None else channel.get(XML_BASE))
    return WireDocument(
        kind=kind,
        name=name,
        title=head.get("title"),
        description=head.get("description"),
        link=head.get("link"),
        language=head.get("language") or root.get(XML_LANG),
        base=base,
        entries=tuple(_entry(item) for item in items),
    )


def rss_items(root: etree._Element) -> list[etree._Element]:
    """Return the `item` elements of a feed, in order.

    >>> len(rss_items(etree.fromstring("<rss><channel><item/><item/></channel></rss>")))
    2
    """
    # RSS 0.90 and 1.0 have their items next to the channel, the other versions inside it.
    items = [child for child in root if _local(child) == "item"]
    channel = _channel(root)
    return items if channel is None else items + [child for child in channel if _local(child) == "item"]


def is_feed(root: etree._Element) -> bool:
    """Return whether an RDF/XML document is a feed, that is, has a channel or items of RSS.

    >>> is_feed(etree.fromstring("<RDF><item/></RDF>")), is_feed(etree.fromstring("<RDF><Person/></RDF>"))
    (True, False)
    """
    return any(_local(child) in ("channel", "item") for child in root)


def _channel(root: etree._Element) -> etree._Element | None:
    return next((child for child in root if _local(child) == "channel"), None)


def _local(element: etree._Element) -> str:
    namespace, local = split_name(element)
    return local if namespace in RSS else ""


def _head(channel: etree._Element) -> dict[str, str]:
    head: dict[str, str] = {}
    for child in channel:
        local = _local(child)
        if local in _HEAD and (text := all_text(child).strip()):
            head.setdefault(local, text)
    for child in channel:
        # Dublin Core elements are used if the RSS elements are missing.
        namespace, local = split_name(child)
        if local in _HEAD and PREFIXES.get(namespace) == "dc" and (text := all_text(child).strip()):
            head.setdefault(local, text)
    return head


def _entry(item: etree._Element) -> WireEntry:
    standard: list[WireField] = []
    extensions: list[WireField] = []
    identifier = item.get(_ABOUT)
    for child in item:
        namespace, local = split_name(child)
        if namespace not in RSS:
            extensions.extend(_atom_link(child) if child.tag == f"{{{ATOM}}}link" else read_extension(child))
            continue
        if local == "guid":
            identifier = all_text(child).strip() or identifier
        standard.extend(_fields(local, child))
    if item.get(XML_LANG):
        extensions.append(WireField("language", item.get(XML_LANG) or ""))
    # Elements of RSS come before extensions with the same meaning.
    return WireEntry(identifier or None, line_of(item), (*standard, *extensions), item.get(XML_BASE))


def _fields(local: str, element: etree._Element) -> Iterator[WireField]:
    text = all_text(element).strip()
    match local:
        case "title" | "author" | "category" if text:
            yield WireField(local, text, TextForm.MARKUP)
        case "description" if text:
            yield WireField("description", _markup(element), TextForm.MARKUP, element.get(XML_BASE))
        case "link" if text:
            yield WireField("link", text, TextForm.LINK, element.get(XML_BASE))
        case "comments" if text:
            yield WireField("comments", text, TextForm.LINK)
        case "pubDate" | "pubdate" if text:
            yield WireField("published", text, TextForm.DATE)
        case "enclosure" if element.get("url"):
            yield WireField("enclosure", element.get("url") or "", TextForm.LINK)
            yield WireField("enclosure:type", element.get("type") or "")
        case "source" if text or element.get("url"):
            yield WireField("source", text or element.get("url") or "", TextForm.MARKUP)
            yield WireField("source:link", element.get("url") or "", TextForm.LINK)
        case "guid":
            if text.startswith(("http://", "https://")) and (element.get("isPermaLink") or "true").strip() != "false":
                yield WireField("guid", text, TextForm.LINK)
        case "title" | "author" | "category" | "description" | "link" | "comments" | "pubDate" | "enclosure":
            return
        case _:
            yield from read_extension(element)


def _markup(element: etree._Element) -> str:
    """Return the text of an element, or its unescaped markup."""
    if len(element) == 0:
        return element.text or ""
    inner = "".join(etree.tostring(child, encoding="unicode") for child in element)
    return (element.text or "") + inner


def _atom_link(element: etree._Element) -> Iterator[WireField]:
    relation = element.get("rel") or "alternate"
    if element.get("href"):
        name = "link" if relation == "alternate" else f"link:{relation}"
        yield WireField(name, element.get("href") or "", TextForm.LINK)
