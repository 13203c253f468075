"""Bytes to a wire document: which family it is shows in the content; only notations of RDF may have to be named.

In: the bytes of a document and a name for messages. Out: a WireDocument. Whatever is wrong is a BrokenDocument with
its place and a hint; but a feed that is only written carelessly is read tolerantly, and its document has a note.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from lxml import etree

from runnel.errors import BrokenDocumentError
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.documents.bounds import MAX_ITEMS
from runnel.sources.documents.charset import decode_text, guess_text
from runnel.sources.documents.decode_atom import decode_atom
from runnel.sources.documents.decode_json import decode_json
from runnel.sources.documents.decode_rss import decode_rss, is_feed, rss_items
from runnel.sources.documents.decode_tolerant import UnknownDocumentError, decode_tolerantly, is_curable, note_of
from runnel.sources.documents.extensions import ATOM, ATOM_03, RDF, RSS, split_name
from runnel.sources.documents.repair_xml import beginning
from runnel.sources.documents.safe_xml import parse_xml
from runnel.sources.documents.wire import DocumentKind, WireDocument
from runnel.sources.rdf.decode_rdf import decode_rdf, decode_rdf_xml, is_like_turtle
from runnel.sources.rdf.rss_graphs import add_graphs

MAX_DOCUMENT = 15 << 20
"""Larger documents are refused, in bytes; a feed of this size is a mistake or an attack."""

_HTML = re.compile(
    r"(?:<!--(?:(?!-->).)*+-->\s*+)*+<(?:!doctype\s++html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
ACCEPT = (
    "application/atom+xml, application/rss+xml, application/feed+json, application/rdf+xml;q=0.9, "
    "application/xml;q=0.8, text/xml;q=0.8, application/json;q=0.7, text/turtle;q=0.6, application/n-triples;q=0.6, "
    "application/trig;q=0.5, application/n-quads;q=0.5, application/ld+json;q=0.4, */*;q=0.1"
)
"""What is asked for, in the words of HTTP."""

_KNOWN = "RSS, Atom, JSON Feed, JSON lines and RDF can be read"


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
    """The wire document in some bytes; `charset` is what the server said of them, if it did.

    `form` is the notation of RDF that its server or its name says that it is (`decode_rdf.form_of`), and `base` the
    address that RDF's relative IRIs are relative to.

    >>> decode(b'{"id": "1", "title": "Muse"}', "muse.jsonl").kind
    <DocumentKind.JSON_LINES: 'json lines'>
    >>> decode(b"<rss><channel><title>Q&A</title></channel></rss>", "a.xml").note
    "read tolerantly: a.xml:1:25: not well-formed XML: EntityRef: expecting ';'"
    """
    if len(data) > limit:
        raise BrokenDocumentError(
            f"the document has {len(data)} bytes, more than the {limit} that are taken",
            place=f"{name}:1",
            hint="split it into smaller ones",
        )
    try:
        text = decode_text(data, name, charset).lstrip("\ufeff")
    except BrokenDocumentError as wrong_charset:
        return _decode_guessed(guess_text(data), name, wrong_charset, base, max_items)
    if form is not None:
        return decode_rdf(text, name, form, base)
    if is_like_turtle(text):
        return decode_rdf(text, name, RdfForm.TRIG, base)  # which holds Turtle and N-Triples too
    position = len(text) - len(text.lstrip())
    match text[position : position + 1]:
        case "<":
            return _decode_xml(text, name, base, max_items)
        case "{" | "[":
            return decode_json(text, name, max_items)
        case "":
            raise BrokenDocumentError("the document is empty", place=f"{name}:1", hint=_KNOWN)
        case _:
            refusal = BrokenDocumentError("neither XML nor JSON", place=f"{name}:1", hint=_KNOWN)
            if beginning(text) < 0:
                raise refusal
            return decode_tolerantly(text, name, refusal, partial(_decode_feed, base=base, max_items=max_items))


def _decode_guessed(
    text: str, name: str, refusal: BrokenDocumentError, base: str | None, max_items: int
) -> WireDocument:
    """A feed in a charset that it does not name; JSON is refused, as its charset is not a matter of opinion."""
    if not text.lstrip().startswith("<"):
        raise refusal
    try:
        return replace(_decode_xml(text, name, base, max_items), note=note_of(refusal))
    except BrokenDocumentError:
        raise refusal from None


def _decode_xml(text: str, name: str, base: str | None, max_items: int) -> WireDocument:
    if _HTML.match(text, len(text) - len(text.lstrip())):
        raise BrokenDocumentError(
            "this is an HTML page, not a feed",
            place=f"{name}:1",
            hint='look in it for <link rel="alternate"> with the address of its feed',
        )
    try:
        return decode_strictly(text, name, base, max_items)
    except BrokenDocumentError as refusal:
        if not is_curable(refusal):
            raise
        return decode_tolerantly(text, name, refusal, partial(_decode_feed, base=base, max_items=max_items))


def decode_strictly(text: str, name: str, base: str | None = None, max_items: int = MAX_ITEMS) -> WireDocument:
    """The wire document of a text that is well-formed XML of a known family."""
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
                f"the element {local[:60]!r} does not begin a feed",
                place=f"{name}:{root.sourceline or 1}",
                hint=_KNOWN,
            ) from UnknownDocumentError(local)


def _decode_rdf_feed(root: etree._Element, name: str, base: str | None, max_items: int) -> WireDocument:
    document = decode_rss(root, name, max_items)
    return add_graphs(document, rss_items(root), root, base)


def _decode_feed(text: str, name: str, *, base: str | None, max_items: int) -> WireDocument:
    """What was mended, where it is a feed: half a graph says other things than the whole one."""
    found = decode_strictly(text, name, base, max_items)
    if found.kind is DocumentKind.GRAPH:
        raise BrokenDocumentError("RDF is not mended", place=f"{name}:1")
    return found
