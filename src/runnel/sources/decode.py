"""Bytes to a wire document: which family it is shows in the content, never in the file's name.

In: the bytes of a document and a name for messages. Out: a WireDocument. Whatever is wrong is a BrokenDocument with
its place and a hint.
"""

from __future__ import annotations

import re

from runnel.errors import BrokenDocument
from runnel.sources.charset import decode_text
from runnel.sources.decode_atom import decode_atom
from runnel.sources.decode_json import decode_json
from runnel.sources.decode_rss import decode_rss
from runnel.sources.decode_xml import parse_xml
from runnel.sources.vocabulary import ATOM, ATOM_03, RDF, RSS, split_name
from runnel.sources.wire import WireDocument

MAX_DOCUMENT = 15 << 20
"""Larger documents are refused, in bytes; a feed of this size is a mistake or an attack."""

_HTML = re.compile(
    r"(?:<!--(?:(?!-->).)*+-->\s*+)*+<(?:!doctype\s++html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_KNOWN = "RSS, Atom, JSON Feed and JSON lines can be read"


def decode(data: bytes, name: str, *, limit: int = MAX_DOCUMENT) -> WireDocument:
    """The wire document in some bytes.

    >>> decode(b'{"id": "1", "title": "Muse"}', "muse.jsonl").kind
    <DocumentKind.JSON_LINES: 'json lines'>
    """
    if len(data) > limit:
        raise BrokenDocument(
            f"the document has {len(data)} bytes, more than the {limit} that are taken",
            place=f"{name}:1",
            hint="split it into smaller ones",
        )
    text = decode_text(data, name).lstrip("\ufeff")
    position = len(text) - len(text.lstrip())
    match text[position : position + 1]:
        case "<":
            return _decode_xml(text, position, name)
        case "{" | "[":
            return decode_json(text, name)
        case "":
            raise BrokenDocument("the document is empty", place=f"{name}:1", hint=_KNOWN)
        case _:
            raise BrokenDocument("neither XML nor JSON", place=f"{name}:1", hint=_KNOWN)


def _decode_xml(text: str, position: int, name: str) -> WireDocument:
    if _HTML.match(text, position):
        raise BrokenDocument(
            "this is an HTML page, not a feed",
            place=f"{name}:1",
            hint='look in it for <link rel="alternate"> with the address of its feed',
        )
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
            )
