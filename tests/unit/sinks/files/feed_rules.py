"""The rules of RSS 2.0, Atom 1.0 and JSON Feed 1.1 that the W3C feed validator and the specifications check.

Written from the specifications, without the code that they check. Each function gives the problems of a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from lxml import etree

ATOM = "{http://www.w3.org/2005/Atom}"
DC = "{http://purl.org/dc/elements/1.1/}"
CONTENT = "{http://purl.org/rss/1.0/modules/content/}"
_URN = re.compile(r"urn:[a-zA-Z0-9][a-zA-Z0-9-]{1,31}:(?:[a-zA-Z0-9()+,.:=@;$_!*'-]|%[0-9A-Fa-f]{2})+", re.IGNORECASE)
_UUID = re.compile(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_HTTP = re.compile(
    r"https?://(?:(?:[\w.~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(?:[\w.~-]+|\[[0-9A-Fa-f:.]+\])(?::\d*)?"
    r"(?:[/?#](?:[\w.~:/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)?",
    re.ASCII,
)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_RFC822 = re.compile(
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} "
    r"\d\d:\d\d:\d\d ([+-]\d{4}|GMT)"
)
_MIME = re.compile(r"""[^\s()<>,;:\\"/\[\]?=]+/[^\s()<>,;:\\"/\[\]?=]+""")
_TAG = re.compile(r"</?(a|b|i|u|p|em|div|span|strong|script|style|img|br|h[1-6]|table|tr|td|ul|li)\b[^<>]*>", re.I)
_ENTITY = re.compile(r"&(#\d+|#x[0-9a-f]+|amp|lt|gt|quot|apos|nbsp|eacute|uuml|hellip|mdash|copy);", re.IGNORECASE)
_LANGUAGE = re.compile(r"(?:[a-z]{2,3})(?:-[A-Za-z0-9]{2,8})*", re.IGNORECASE | re.ASCII)
_TWO_LETTERS = frozenset(["de", "en", "fr", "es", "it", "pt", "nl", "ja", "zh", "ru", "sv", "da", "fi", "pl", "tr"])
_RELAX_NG = etree.RelaxNG(etree.parse(str(Path(__file__).with_name("atom.rng"))))


def rss_problems(data: bytes) -> list[str]:
    """What is wrong with an RSS 2.0 document."""
    root = etree.fromstring(data)
    problems = [*_xml_problems(root)]
    channel = root.find("channel")
    if root.tag != "rss" or root.get("version") != "2.0" or channel is None or len(root) != 1:
        return [*problems, "not RSS 2.0"]
    for name in ("title", "link", "description"):
        problems += [] if len(channel.findall(name)) == 1 and channel.findtext(name) else [f"channel needs a {name}"]
    problems += _uri(channel.findtext("link"), "channel link")
    problems += _rfc822(channel.findtext("lastBuildDate"), "lastBuildDate")
    for name in ("title", "description"):
        problems += _plain(channel.findtext(name) or "", f"channel {name}")
    for link in channel.findall(f"{ATOM}link"):
        problems += _uri(link.get("href"), "atom:link") + ([] if link.get("rel") == "self" else ["rel"])
    guids = [item.findtext("guid") for item in channel.findall("item")]
    problems += [] if len(set(guids)) == len(guids) else ["two items have the same guid"]
    for item in channel.findall("item"):
        problems += _rss_item(item)
    return problems


def _rss_item(item: etree._Element) -> Iterator[str]:
    for name in ("title", "link", "guid", "pubDate", "description", "enclosure", f"{CONTENT}encoded"):
        if len(item.findall(name)) > 1:
            yield f"{name} twice"
    if not item.findtext("title") and not item.findtext("description"):
        yield "an item needs a title or a description"
    yield from _plain(item.findtext("title") or "", "title")
    if item.find("link") is not None:
        yield from _http(item.findtext("link"), "link")
    guid = item.find("guid")
    if guid is not None and guid.get("isPermaLink") != "false":
        yield from _http(guid.text, "guid")
    if item.find("pubDate") is not None:
        yield from _rfc822(item.findtext("pubDate"), "pubDate")
    for name in ("description", f"{CONTENT}encoded"):
        yield from _html(item.findtext(name) or "", name)
    for label in [*item.findall("category"), *item.findall(f"{DC}creator")]:
        if not (label.text or "").strip():
            yield f"{label.tag} is empty"
        yield from _plain(label.text or "", str(label.tag))
    for element in item.findall(f"{DC}language"):
        yield from _language(element.text)
    for enclosure in item.findall("enclosure"):
        yield from _http(enclosure.get("url"), "enclosure")
        if not (enclosure.get("length") or "").isdigit() or not _MIME.fullmatch(enclosure.get("type") or ""):
            yield "an enclosure needs a length and a type"


def atom_problems(data: bytes) -> list[str]:
    """What is wrong with an Atom 1.0 document."""
    root = etree.fromstring(data)
    problems = [*_xml_problems(root)]
    if not _RELAX_NG.validate(root):
        problems += [f"{error.line}: {error.message}" for error in _RELAX_NG.error_log]
    problems += _uri(root.findtext(f"{ATOM}id"), "feed id")
    for node in (root, *root.findall(f"{ATOM}entry")):
        problems += _atom_node(node)
    ids = [entry.findtext(f"{ATOM}id") for entry in root.findall(f"{ATOM}entry")]
    problems += [] if len(set(ids)) == len(ids) else ["two entries have the same id"]
    for entry in root.findall(f"{ATOM}entry"):
        problems += _atom_entry(entry)
    return problems


def _atom_node(node: etree._Element) -> Iterator[str]:
    for name in ("title", "subtitle", "summary", "rights", "content"):
        for text in node.findall(f"{ATOM}{name}"):
            if text.get("type", "text") == "text":
                yield from _plain(text.text or "", name)
            else:
                yield from _html(text.text or "", name)
    for name in ("updated", "published"):
        for moment in node.findall(f"{ATOM}{name}"):
            yield from _rfc3339(moment.text, name)
    for link in node.findall(f"{ATOM}link"):
        yield from _http(link.get("href"), "link")
    if "{http://www.w3.org/XML/1998/namespace}lang" in node.attrib:
        yield from _language(node.get("{http://www.w3.org/XML/1998/namespace}lang"))


def _atom_entry(entry: etree._Element) -> Iterator[str]:
    yield from _uri(entry.findtext(f"{ATOM}id"), "entry id")
    alternates = [link for link in entry.findall(f"{ATOM}link") if link.get("rel", "alternate") == "alternate"]
    content = entry.find(f"{ATOM}content")
    if not alternates and content is None:
        yield "an entry needs content or an alternate link"
    if len(alternates) > 1:
        yield "two alternate links"
    if content is not None and not (content.text or "").strip():
        yield "content is empty"
    if not entry.findall(f"{ATOM}author"):
        yield "an entry needs an author"
    for name in entry.findall(f"{ATOM}author/{ATOM}name"):
        yield from _plain(name.text or "", "author")


def json_feed_problems(data: bytes) -> list[str]:
    """What is wrong with a JSON Feed 1.1 document."""
    document = json.loads(data)
    problems = [*_json_texts(document, "feed")]
    if document.get("version") != "https://jsonfeed.org/version/1.1" or not document.get("title"):
        problems.append("version and title are required")
    if "feed_url" in document:
        problems += _http(document["feed_url"], "feed_url")
    ids = [item.get("id") for item in document["items"]]
    problems += (
        [] if len(set(ids)) == len(ids) and all(isinstance(value, str) and value for value in ids) else ["ids"]
    )
    for item in document["items"]:
        problems += _json_item(item)
    return problems


def _json_item(item: dict[str, Any]) -> Iterator[str]:
    if not item.get("content_html") and not item.get("content_text"):
        yield "content_html or content_text is required"
    yield from _html(item.get("content_html", ""), "content_html")
    yield from _plain(item.get("summary", ""), "summary")
    if "url" in item:
        yield from _http(item["url"], "url")
    for name in ("date_published", "date_modified"):
        if name in item:
            yield from _rfc3339(item[name], name)
    if "language" in item:
        yield from _language(item["language"])
    for author in item.get("authors", ()):
        if not author.get("name"):
            yield "an author without a name"
    for attachment in item.get("attachments", ()):
        yield from _http(attachment.get("url"), "attachment")
        if not _MIME.fullmatch(attachment.get("mime_type", "")):
            yield "an attachment needs a mime_type"


def _json_texts(value: Any, name: str) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                if not key.startswith("_"):
                    yield from _json_texts(inner, key)
        case list():
            for inner in value:
                yield from _json_texts(inner, name)
        case None:
            yield f"{name} is null"
        case str():
            yield from _characters(value, name)


def _xml_problems(root: etree._Element) -> Iterator[str]:
    for uri in {uri for element in root.iter() for uri in element.nsmap.values()}:
        yield from _uri(uri, "namespace")
    for element in root.iter():
        yield from _characters(element.text or "", str(element.tag))


def _characters(text: str, name: str) -> Iterator[str]:
    if any(
        (value < " " and value not in "\t\n\r") or "\x7f" <= value <= "\x9f" or value == "\ufffd" for value in text
    ):
        yield f"{name} has bad characters"


def _uri(text: str | None, name: str) -> list[str]:
    text = text or ""
    if text.lower().startswith("urn:uuid:"):
        return [] if _UUID.fullmatch(text) else [f"{name}: {text!r} is no UUID"]
    if text.lower().startswith("urn:"):
        return [] if _URN.fullmatch(text) else [f"{name}: {text!r} is no URN"]
    return _http(text, name)


def _http(text: str | None, name: str) -> list[str]:
    return [] if _HTTP.fullmatch(text or "") else [f"{name}: {text!r} is no http address"]


def _rfc822(text: str | None, name: str) -> list[str]:
    try:
        good = bool(_RFC822.fullmatch(text or "")) and bool(parsedate_to_datetime(text or ""))
    except ValueError:
        good = False
    return [] if good else [f"{name}: {text!r} is no date of RFC 822"]


def _rfc3339(text: str | None, name: str) -> list[str]:
    try:
        good = bool(_RFC3339.fullmatch(text or "")) and bool(datetime.fromisoformat(text or ""))
    except ValueError:
        good = False
    return [] if good else [f"{name}: {text!r} is no date of RFC 3339"]


def _language(text: str | None) -> list[str]:
    primary = (text or "").split("-")[0].lower()
    known = len(primary) == 3 or primary in _TWO_LETTERS
    return [] if _LANGUAGE.fullmatch(text or "") and known else [f"{text!r} is no language"]


def _plain(text: str, name: str) -> list[str]:
    return [f"{name} has undeclared markup: {text!r}"] if _TAG.search(text) or _ENTITY.search(text) else []


class _Html(HTMLParser):
    """Finds elements and addresses that no feed may carry."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "iframe", "object", "embed", "form", "meta", "link", "base"):
            self.problems.append(f"<{tag}>")
        for name, value in attributes:
            if name.startswith("on") or name == "style":
                self.problems.append(f"an attribute {name}")
            if name in ("href", "src", "cite") and not (value or "").startswith(("http://", "https://", "mailto:")):
                self.problems.append(f"a relative or unsafe address {value!r}")


def _html(text: str, name: str) -> list[str]:
    parser = _Html()
    parser.feed(text)
    parser.close()
    return [f"{name} has {problem}" for problem in parser.problems]
