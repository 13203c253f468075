"""Decodes a document of any known format to a wire document. The format is detected from the content.

In: the bytes of a document and a name for messages. Out: a WireDocument, or a BrokenDocumentError with a position and
a hint. A feed with common errors, such as unescaped characters, is decoded tolerantly, and its document has a note.
The notation of RDF may have to be given, because not every notation can be detected.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from lxml import etree

from runnel.errors import BrokenDocumentError
from runnel.model.safe_xml import parse_xml
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.documents.bounds import MAX_ITEMS, refuse_large
from runnel.sources.documents.charset import decode_text, guess_text
from runnel.sources.documents.decode_atom import decode_atom
from runnel.sources.documents.decode_json import decode_json
from runnel.sources.documents.decode_rss import decode_rss, is_feed, rss_items
from runnel.sources.documents.decode_tolerant import UnknownDocumentError, decode_tolerantly, is_recoverable, note_of
from runnel.sources.documents.extensions import ATOM, ATOM_03, RDF, RSS, split_name
from runnel.sources.documents.repair_xml import find_feed_start
from runnel.sources.documents.wire import DocumentKind, WireDocument
from runnel.sources.rdf.decode_rdf import decode_rdf, decode_rdf_xml, is_like_turtle
from runnel.sources.rdf.rss_graphs import add_graphs

MAX_DOCUMENT = 15 << 20
"""Default size limit in bytes. A larger feed is a mistake or an attack."""

_HTML = re.compile(
    r"(?:<!--(?:(?!-->).)*+-->\s*+)*+<(?:!doctype\s++html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
ACCEPT = (
    "application/atom+xml, application/rss+xml, application/feed+json, application/rdf+xml;q=0.9, "
    "application/xml;q=0.8, text/xml;q=0.8, application/json;q=0.7, text/turtle;q=0.6, application/n-triples;q=0.6, "
    "application/trig;q=0.5, application/n-quads;q=0.5, application/ld+json;q=0.4, */*;q=0.1"
)
"""The Accept header of requests for feeds."""

_FORMATS_HINT = "supported formats are RSS, Atom, JSON Feed, JSON lines and RDF"


def decode(
    data: bytes,
    name: str,
    *,
    limit: int = MAX_DOCUMENT,
    charset: str | None = None,
    form: RdfForm | None = None,
    base: str | None = None,
    max_items: int = MAX_ITEMS,
) -> WireDocument:
    """Decode a document. `charset` is the charset that the server declared, if any.

    `form` is the RDF notation according to the media type or the name (`decode_rdf.form_of`). `base` is the base of
    relative IRIs in RDF.

    >>> decode(b'{"id": "1", "title": "Muse"}', "muse.jsonl").kind
    <DocumentKind.JSON_LINES: 'json lines'>
    >>> decode(b"<rss><channel><title>Q&A</title></channel></rss>", "a.xml").note
    "read tolerantly: a.xml:1:25: not well-formed XML: EntityRef: expecting ';'"
    """
    refuse_large(data, name, limit)
    try:
        text = decode_text(data, name, charset).lstrip("\ufeff")
    except BrokenDocumentError as charset_error:
        return _decode_guessed(guess_text(data), name, charset_error, base, max_items)
    if form is not None:
        return decode_rdf(text, name, form, base)
    if is_like_turtle(text):
        return decode_rdf(text, name, RdfForm.TRIG, base)  # a superset of Turtle and N-Triples
    position = len(text) - len(text.lstrip())
    match text[position : position + 1]:
        case "<":
            return _decode_xml(text, name, base, max_items)
        case "{" | "[":
            return decode_json(text, name, max_items)
        case "":
            raise BrokenDocumentError("the document is empty", place=f"{name}:1", hint=_FORMATS_HINT)
        case _:
            error = BrokenDocumentError(
                "the document is neither XML nor JSON, and does not start like RDF",
                place=f"{name}:1",
                hint=_FORMATS_HINT,
            )
            if find_feed_start(text) < 0:
                raise error
            return decode_tolerantly(text, name, error, partial(_decode_feed, base=base, max_items=max_items))


def _decode_guessed(
    text: str, name: str, charset_error: BrokenDocumentError, base: str | None, max_items: int
) -> WireDocument:
    """Decode XML whose charset was guessed. Raise the original error for other formats, whose charset is fixed."""
    if not text.lstrip().startswith("<"):
        raise charset_error
    try:
        return replace(_decode_xml(text, name, base, max_items), note=note_of(charset_error))
    except BrokenDocumentError:
        raise charset_error from None


def _decode_xml(text: str, name: str, base: str | None, max_items: int) -> WireDocument:
    if _HTML.match(text, len(text) - len(text.lstrip())):
        raise BrokenDocumentError(
            "the document is an HTML page, not a feed",
            place=f"{name}:1",
            hint='find the address of the feed in the page, in <link rel="alternate">',
        )
    try:
        return decode_strictly(text, name, base, max_items)
    except BrokenDocumentError as error:
        if not is_recoverable(error):
            raise
        return decode_tolerantly(text, name, error, partial(_decode_feed, base=base, max_items=max_items))


def decode_strictly(text: str, name: str, base: str | None = None, max_items: int = MAX_ITEMS) -> WireDocument:
    """Decode a text that must be well-formed XML in a known format."""
    root = parse_xml(text, name)
    namespace, local = split_name(root)
    match local:
        case "rss" if namespace in RSS:
            return decode_rss(root, name, max_items)
        case "RDF" if namespace == RDF and not is_feed(root):
            return decode_rdf_xml(root, name, base)
        case "RDF" if namespace == RDF:
            return _decode_rdf_feed(root, name, base, max_items)
        case "feed" | "entry" if namespace in (ATOM, ATOM_03):
            return decode_atom(root, name, max_items)
        case _:
            raise BrokenDocumentError(
                f"the root element {local[:60]!r} is not that of RSS, Atom or RDF",
                place=f"{name}:{root.sourceline or 1}",
                hint=_FORMATS_HINT,
            ) from UnknownDocumentError(local)


def _decode_rdf_feed(root: etree._Element, name: str, base: str | None, max_items: int) -> WireDocument:
    document = decode_rss(root, name, max_items)
    return add_graphs(document, rss_items(root), root, base)


def _decode_feed(text: str, name: str, *, base: str | None, max_items: int) -> WireDocument:
    """Decode repaired XML if it is a feed. RDF is not repaired, because a part of a graph has another meaning."""
    document = decode_strictly(text, name, base, max_items)
    if document.kind is DocumentKind.GRAPH:
        raise BrokenDocumentError("the RDF document is not well-formed, and RDF is not repaired", place=f"{name}:1")
    return document
