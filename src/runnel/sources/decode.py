"""Bytes to a wire document: which family it is shows in the content, never in the file's name.

In: the bytes of a document and a name for messages. Out: a WireDocument. Whatever is wrong is a BrokenDocument with
its place and a hint; but a feed that is only written carelessly is read tolerantly, and its document has a note.
"""

from __future__ import annotations

import re
from dataclasses import replace

from runnel.errors import BrokenDocument
from runnel.outside.xml import parse_xml
from runnel.sources.charset import decode_text, guess_text
from runnel.sources.decode_atom import decode_atom
from runnel.sources.decode_json import decode_json
from runnel.sources.decode_rss import decode_rss
from runnel.sources.decode_tolerant import UnknownRoot, decode_tolerantly, is_curable, note_of
from runnel.sources.mend import beginning
from runnel.sources.vocabulary import ATOM, ATOM_03, RDF, RSS, split_name
from runnel.sources.wire import WireDocument

MAX_DOCUMENT = 15 << 20
"""Larger documents are refused, in bytes; a feed of this size is a mistake or an attack."""

_HTML = re.compile(
    r"(?:<!--(?:(?!-->).)*+-->\s*+)*+<(?:!doctype\s++html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_KNOWN = "RSS, Atom, JSON Feed and JSON lines can be read"


def decode(data: bytes, name: str, *, limit: int = MAX_DOCUMENT, charset: str | None = None) -> WireDocument:
    """The wire document in some bytes; `charset` is what the server said of them, if it did.

    >>> decode(b'{"id": "1", "title": "Muse"}', "muse.jsonl").kind
    <DocumentKind.JSON_LINES: 'json lines'>
    >>> decode(b"<rss><channel><title>Q&A</title></channel></rss>", "a.xml").note
    "read tolerantly: a.xml:1:25: not well-formed XML: EntityRef: expecting ';'"
    """
    if len(data) > limit:
        raise BrokenDocument(
            f"the document has {len(data)} bytes, more than the {limit} that are taken",
            place=f"{name}:1",
            hint="split it into smaller ones",
        )
    try:
        text = decode_text(data, name, charset).lstrip("\ufeff")
    except BrokenDocument as wrong_charset:
        return _decode_guessed(guess_text(data), name, wrong_charset)
    position = len(text) - len(text.lstrip())
    match text[position : position + 1]:
        case "<":
            return _decode_xml(text, name)
        case "{" | "[":
            return decode_json(text, name)
        case "":
            raise BrokenDocument("the document is empty", place=f"{name}:1", hint=_KNOWN)
        case _:
            refusal = BrokenDocument("neither XML nor JSON", place=f"{name}:1", hint=_KNOWN)
            if beginning(text) < 0:
                raise refusal
            return decode_tolerantly(text, name, refusal, decode_strictly)


def _decode_guessed(text: str, name: str, refusal: BrokenDocument) -> WireDocument:
    """A feed in a charset that it does not name; JSON is refused, as its charset is not a matter of opinion."""
    if not text.lstrip().startswith("<"):
        raise refusal
    try:
        return replace(_decode_xml(text, name), note=note_of(refusal))
    except BrokenDocument:
        raise refusal from None


def _decode_xml(text: str, name: str) -> WireDocument:
    if _HTML.match(text, len(text) - len(text.lstrip())):
        raise BrokenDocument(
            "this is an HTML page, not a feed",
            place=f"{name}:1",
            hint='look in it for <link rel="alternate"> with the address of its feed',
        )
    try:
        return decode_strictly(text, name)
    except BrokenDocument as refusal:
        if not is_curable(refusal):
            raise
        return decode_tolerantly(text, name, refusal, decode_strictly)


def decode_strictly(text: str, name: str) -> WireDocument:
    """The wire document of a text that is well-formed XML of a known family."""
    root = parse_xml(text, name)
    namespace, local = split_name(root)
    match local:
        case "rss" if namespace in RSS:
            return decode_rss(root, name)
        case "RDF" if namespace == RDF:
            return decode_rss(root, name)
        case "feed" | "entry" if namespace in (ATOM, ATOM_03):
            return decode_atom(root, name)
        case _:
            raise BrokenDocument(
                f"the element {local[:60]!r} does not begin a feed",
                place=f"{name}:{root.sourceline or 1}",
                hint=_KNOWN,
            ) from UnknownRoot(local)
