"""Feeds that are not what they should be, to wire documents: mended where that is enough, else read tolerantly.

In: the text of a feed that the strict decoders refused, and their refusal. Out: a WireDocument with a note that says
so, or the refusal. First the commonest faults are put right and the strict decoders try again, so that such a feed's
items look as if nothing had been wrong. What is still not XML goes to feedparser, in a sandbox. What feedparser finds
is plain text to us, and is cleaned as everything else from outside.
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
"""The largest text that is read tolerantly, in characters: this costs a hundred times what strict reading costs."""

_WALL_SECONDS = 20.0
_MAX_REPLY = 32 << 20
_PROGRAM = SandboxProgram(
    "runnel.sandbox.feedparser_child", ("feedparser", "sgmllib"), megabytes=512, cpu_seconds=5.0
)
_SANDBOX = SandboxPool(_PROGRAM, workers=1)
_EXTENSIONS = tuple(f"{prefix}_" for prefix in sorted(set(PREFIXES.values()) - {"atom", "dc", "rdf", "content"}))
_LIKE_A_FEED = re.compile(r"<(?:[\w.-]{1,30}:)?(?:item|entry|rss|feed|channel)[\s/>]", re.IGNORECASE)
_TAKEN = frozenset({"itunes_author", "itunes_keywords", "media_content", "media_credit"})


def decode_tolerantly(
    text: str, name: str, refusal: BrokenDocumentError, decode_strictly: Callable[[str, str], WireDocument]
) -> WireDocument:
    """The wire document of a text that was refused; raises the refusal where nothing can be made of it."""
    mended = repair_xml(text)
    if mended is None:
        raise refusal
    try:
        return replace(decode_strictly(mended, name), note=note_of(refusal))
    except BrokenDocumentError as second:
        if not is_curable(second):
            raise refusal from None
    # A second reader costs a process: only for what has at least the words of a feed in it.
    found = _read(mended) if len(mended) <= MAX_TOLERANT and _LIKE_A_FEED.search(mended) else None
    document = None if found is None else wire_document(found, name)
    if document is None:
        raise refusal
    return replace(document, note=note_of(refusal))


def is_curable(refusal: BrokenDocumentError) -> bool:
    """Whether a document was refused for what it says, not for what it might do: a bomb gets no second reader."""
    return isinstance(refusal.__cause__, etree.XMLSyntaxError | UnknownDocumentError)


class UnknownDocumentError(Exception):
    """The cause of a refusal: XML, but none of the families that the strict decoders know."""


def note_of(refusal: BrokenDocumentError) -> str:
    """What is said of a document that was read all the same.

    >>> note_of(BrokenDocumentError("not well-formed XML", place="a.xml:3:1"))
    'read tolerantly: a.xml:3:1: not well-formed XML'
    """
    place = f"{refusal.place}: " if refusal.place else ""
    return f"read tolerantly: {place}{refusal.message}"


def _read(text: str) -> Mapping[str, Any] | None:
    try:
        return _SANDBOX.ask(text.encode("utf-8", "replace"), _read_reply, seconds=_WALL_SECONDS, max_reply=_MAX_REPLY)
    except SandboxError:
        return None


def _read_reply(reply: memoryview) -> Mapping[str, Any]:
    found = json.loads(bytes(reply))
    if not isinstance(found, dict):
        raise BadReplyError("it is no object")
    return found


def wire_document(found: Mapping[str, Any], name: str) -> WireDocument | None:
    """The wire document of what feedparser found; None where it did not recognise a feed."""
    version = _text(found.get("version"))
    feed = _object(found.get("feed"))
    entries = [_object(entry) for entry in _list(found.get("entries"))]
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
        # RSS does not say what its titles are, so they are read as markup, as the strict decoder does.
        form = TextForm.PLAIN if kind is DocumentKind.ATOM and title.get("type") == "text/plain" else TextForm.MARKUP
        yield WireField("title", _text(entry.get("title")), form)
    contents = [_object(one) for one in _list(entry.get("content"))]
    summary = _object(entry.get("summary_detail")) | {"value": entry.get("summary")}
    # feedparser repeats the content where there is no summary.
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
        plain = kind is DocumentKind.ATOM and detail.get("type") == "text/plain"
        yield WireField(name, text, TextForm.PLAIN if plain else TextForm.MARKUP, _text(detail.get("base")) or None)


def _links(entry: Mapping[str, Any]) -> Iterator[WireField]:
    listed = [_object(link) for link in _list(entry.get("links"))]
    for link in listed:
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
    if _text(entry.get("link")) and not any(link.get("rel", "alternate") == "alternate" for link in listed):
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
        published, updated = updated, ""  # dc:date, which is the date of an entry of RSS
    if published:
        yield WireField("published", published, TextForm.DATE)
    if updated:
        yield WireField("updated", updated, TextForm.DATE)


def _extensions(entry: Mapping[str, Any]) -> Iterator[WireField]:
    for key, value in entry.items():
        if key.startswith(_EXTENSIONS) and key not in _TAKEN and isinstance(value, str) and value.strip():
            prefix, _, local = key.partition("_")
            yield WireField(f"{prefix}:{local}", value)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
