"""Decodes feeds that the strict decoders rejected: repairs them, or else parses them with feedparser.

In: the text of a feed, and the error of the strict decoder. Out: a WireDocument with a note, or the original error.
First, the most common errors in the XML are repaired, and the strict decoders try again. If the text is still not
well-formed XML, feedparser parses it in a sandbox. Its output is not trusted and is cleaned as all other input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from lxml import etree

from runnel.errors import BrokenDocumentError
from runnel.sandbox.pool import SandboxPool
from runnel.sandbox.process import BadReplyError, SandboxError, SandboxProgram
from runnel.sources.documents.extensions import PREFIXES
from runnel.sources.documents.repair_xml import repair_xml
from runnel.sources.documents.wire import DocumentKind, TextForm, WireDocument, WireEntry, WireField

MAX_TOLERANT = 2 << 20
"""Maximum length of a text for feedparser, in characters. It needs a hundred times the time of strict decoding."""

_WALL_SECONDS = 20.0
_MAX_REPLY = 32 << 20
_PROGRAM = SandboxProgram(
    "runnel.sandbox.feedparser_child", ("feedparser", "sgmllib"), megabytes=512, cpu_seconds=5.0
)
_SANDBOX = SandboxPool(_PROGRAM, workers=1)
_EXTENSIONS = tuple(f"{prefix}_" for prefix in sorted(set(PREFIXES.values()) - {"atom", "dc", "rdf", "content"}))
_FEED_TAG = re.compile(r"<(?:[\w.-]{1,30}:)?(?:item|entry|rss|feed|channel)[\s/>]", re.IGNORECASE)
_STANDARD_EXTENSIONS = frozenset({"itunes_author", "itunes_keywords", "media_content", "media_credit"})


def decode_tolerantly(
    text: str, name: str, error: BrokenDocumentError, decode_strictly: Callable[[str, str], WireDocument]
) -> WireDocument:
    """Decode a text that was rejected with `error`. Raise that error again if the text cannot be decoded."""
    repaired = repair_xml(text)
    if repaired is None:
        raise error
    try:
        return replace(decode_strictly(repaired, name), note=note_of(error))
    except BrokenDocumentError as second_error:
        if not is_recoverable(second_error):
            raise error from None
    # feedparser needs another process, so it is used only for texts that contain a tag of a feed.
    parsed = _parse(repaired) if len(repaired) <= MAX_TOLERANT and _FEED_TAG.search(repaired) else None
    document = None if parsed is None else wire_document(parsed, name)
    if document is None:
        raise error
    return replace(document, note=note_of(error))


def is_recoverable(error: BrokenDocumentError) -> bool:
    """Return whether a document may be decoded tolerantly: not if it was rejected for security, such as a bomb."""
    return isinstance(error.__cause__, etree.XMLSyntaxError | UnknownDocumentError)


class UnknownDocumentError(Exception):
    """The cause of an error: the document is XML, but in no format that the strict decoders know."""


def note_of(error: BrokenDocumentError) -> str:
    """Return the note of a document that was decoded in spite of an error.

    >>> note_of(BrokenDocumentError("not well-formed XML", place="a.xml:3:1"))
    'read tolerantly: a.xml:3:1: not well-formed XML'
    """
    place = f"{error.place}: " if error.place else ""
    return f"read tolerantly: {place}{error.message}"


def _parse(text: str) -> Mapping[str, Any] | None:
    try:
        return _SANDBOX.ask(text.encode("utf-8", "replace"), _read_reply, seconds=_WALL_SECONDS, max_reply=_MAX_REPLY)
    except SandboxError:
        return None


def _read_reply(reply: memoryview) -> Mapping[str, Any]:
    parsed = json.loads(bytes(reply))
    if not isinstance(parsed, dict):
        raise BadReplyError("the reply is not a JSON object")
    return parsed


def wire_document(parsed: Mapping[str, Any], name: str) -> WireDocument | None:
    """Convert the output of feedparser to a wire document. Return None if it did not recognize a feed."""
    version = _text(parsed.get("version"))
    feed = _object(parsed.get("feed"))
    entries = [_object(entry) for entry in _list(parsed.get("entries"))]
    if not entries and not (version and _text(feed.get("title"))):
        return None
    kind = DocumentKind.ATOM if version.startswith("atom") else DocumentKind.RSS
    kind = DocumentKind.RDF if version in ("rss090", "rss10") else kind
    return WireDocument(
        kind=kind,
        name=name,
        title=_text(feed.get("title")) or None,
        description=_text(feed.get("subtitle")) or None,
        link=_text(feed.get("link")) or None,
        language=_text(feed.get("language")) or None,
        entries=tuple(_entry(entry, kind) for entry in entries),
    )


def _entry(entry: Mapping[str, Any], kind: DocumentKind) -> WireEntry:
    fields = (
        *_texts(entry, kind),
        *_links(entry),
        *_people(entry, kind),
        *_dates(entry, kind),
        *_extensions(entry),
    )
    return WireEntry(_text(entry.get("id")) or None, 1, fields)


def _texts(entry: Mapping[str, Any], kind: DocumentKind) -> Iterator[WireField]:
    title = _object(entry.get("title_detail"))
    if _text(entry.get("title")):
        # RSS does not declare the type of titles, so they are treated as markup, as in the strict decoder.
        form = TextForm.PLAIN if kind is DocumentKind.ATOM and title.get("type") == "text/plain" else TextForm.MARKUP
        yield WireField("title", _text(entry.get("title")), form)
    contents = [_object(content) for content in _list(entry.get("content"))]
    summary = _object(entry.get("summary_detail")) | {"value": entry.get("summary")}
    # feedparser repeats the content as the summary if there is none.
    if not contents or summary["value"] != contents[0].get("value"):
        yield from _construct("description", summary, kind)
    for content in contents:
        yield from _construct("content", content, kind)
    for tag in _list(entry.get("tags")):
        label = _text(_object(tag).get("label")) or _text(_object(tag).get("term"))
        if label:
            yield WireField("category", label, TextForm.MARKUP)
    source = _object(entry.get("source"))
    if _text(source.get("title")):
        yield WireField("source", _text(source.get("title")), TextForm.MARKUP)
    if _text(source.get("href")):
        yield WireField("source:link", _text(source.get("href")), TextForm.LINK)
    for rights in filter(None, [_text(entry.get("rights"))]):
        yield WireField("rights", rights, TextForm.MARKUP)


def _construct(name: str, detail: Mapping[str, Any], kind: DocumentKind) -> Iterator[WireField]:
    text = _text(detail.get("value"))
    if text:
        is_plain = kind is DocumentKind.ATOM and detail.get("type") == "text/plain"
        yield WireField(
            name, text, TextForm.PLAIN if is_plain else TextForm.MARKUP, _text(detail.get("base")) or None
        )


def _links(entry: Mapping[str, Any]) -> Iterator[WireField]:
    links = [_object(link) for link in _list(entry.get("links"))]
    for link in links:
        address, relation = _text(link.get("href")), _text(link.get("rel")) or "alternate"
        match relation:
            case _ if not address:
                continue
            case "alternate":
                yield WireField("link", address, TextForm.LINK)
            case "enclosure":
                yield WireField("enclosure", address, TextForm.LINK)
                yield WireField("enclosure:type", _text(link.get("type")))
            case "replies":
                yield WireField("comments", address, TextForm.LINK)
            case _ if relation.isascii() and relation.replace("-", "").isalpha() and len(relation) <= 32:
                yield WireField(f"link:{relation}", address, TextForm.LINK)
    if _text(entry.get("link")) and not any(link.get("rel", "alternate") == "alternate" for link in links):
        yield WireField("link", _text(entry.get("link")), TextForm.LINK)
    if _text(entry.get("comments")):
        yield WireField("comments", _text(entry.get("comments")), TextForm.LINK)


def _people(entry: Mapping[str, Any], kind: DocumentKind) -> Iterator[WireField]:
    if kind is not DocumentKind.ATOM:
        if _text(entry.get("author")):
            yield WireField("author", _text(entry.get("author")), TextForm.MARKUP)
        return
    for relation, key in (("author", "authors"), ("contributor", "contributors")):
        for person in map(_object, _list(entry.get(key))):
            yield WireField(relation, _text(person.get("name")))
            yield WireField(f"{relation}:email", _text(person.get("email")))
            yield WireField(f"{relation}:link", _text(person.get("href")), TextForm.LINK)


def _dates(entry: Mapping[str, Any], kind: DocumentKind) -> Iterator[WireField]:
    published = _text(entry.get("published")) or _text(entry.get("created"))
    updated = _text(entry.get("updated"))
    if kind is not DocumentKind.ATOM and not published:
        published, updated = updated, ""  # from dc:date, which is the publication date in RSS
    if published:
        yield WireField("published", published, TextForm.DATE)
    if updated:
        yield WireField("updated", updated, TextForm.DATE)


def _extensions(entry: Mapping[str, Any]) -> Iterator[WireField]:
    for key, value in entry.items():
        if (
            key.startswith(_EXTENSIONS)
            and key not in _STANDARD_EXTENSIONS
            and isinstance(value, str)
            and value.strip()
        ):
            prefix, _, local = key.partition("_")
            yield WireField(f"{prefix}:{local}", value)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
