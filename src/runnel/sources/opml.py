"""Import and export of feed lists in OPML, the format of feed readers.

In: the bytes of an OPML document. Out: `read_opml` returns its feeds (title, address, folders and home page), the
problems of outlines that are not valid feeds, and the repairs that were needed to parse the document. `feed_names`
creates names for the feeds that can be used in statements. `write_opml` creates an OPML document.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from xml.sax.saxutils import quoteattr

from lxml import etree

from runnel.algebra.nodes.render import RESERVED
from runnel.errors import BrokenDocumentError, InputError, InvalidItemError
from runnel.model.safe_xml import parse_xml
from runnel.sources.documents.charset import decode_text, guess_text
from runnel.sources.documents.extensions import line_of, split_name
from runnel.sources.documents.repair_xml import repair_xml

MAX_OPML = 15 << 20
MAX_FEEDS = 100_000
_MAX_ADDRESS_LENGTH = 8192
_MAX_TITLE_LENGTH = 500
_MAX_HOME_LENGTH = 500
_MAX_NAME_LENGTH = 60
_OUTLINE = re.compile(
    r"(?P<end></outline\s{0,9}>)"
    r"|<outline\b(?P<attributes>[^<>]{0,9000}(?:[<>][^<>]{0,9000}?){0,20}?)>(?=\s{0,99}(?:<|\Z))",
    re.IGNORECASE,
)
"""An outline tag ends at a `>` before another tag or the end of the text, so its title may contain `>`."""

_OUTLINE_ATTRIBUTE = re.compile(
    r"""(?P<key>[A-Za-z_][\w.-]{0,60})\s{0,9}=\s{0,9}
    (?:(?P<quote>["'])(?P<value>.{0,9000}?)(?P=quote)(?=\s{1,99}[A-Za-z_][\w.:-]{0,60}\s{0,9}=|\s{0,99}\Z)
    |(?P<bare>[^\s"'<>]{1,9000}))""",
    re.DOTALL | re.VERBOSE,
)
"""A value ends at a quote that is followed by another attribute or the end of the tag, so it may contain quotes."""

_ADDRESS = re.compile(r"(?:https?|feed)://[^\s/?#]", re.IGNORECASE)
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class OpmlFeed:
    """A feed in a list. `folders` are the folders that contain it, outermost first; `home` is its home page.

    `categories` are from the `category` attribute (OPML 2.0), as paths such as `/Boston/Weather` or `weather`.
    """

    title: str
    address: str
    folders: tuple[str, ...] = ()
    home: str = ""
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpmlList:
    """The feeds of a document in order, the problems of other outlines, and descriptions of repairs."""

    feeds: tuple[OpmlFeed, ...]
    problems: tuple[InputError, ...] = ()
    repairs: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[OpmlFeed]:
        return iter(self.feeds)

    def __len__(self) -> int:
        return len(self.feeds)


def read_opml(data: bytes, name: str = "opml", *, limit: int = MAX_OPML) -> OpmlList:
    """Read the feeds of an OPML document, or raise BrokenDocumentError.

    >>> outline = b'<outline text="Music"><outline xmlUrl="https://muse.example/rss"/></outline>'
    >>> read_opml(b"<opml><body>" + outline + b"</body></opml>").feeds
    (OpmlFeed(title='muse.example', address='https://muse.example/rss', folders=('Music',), home='', categories=()),)
    """
    if len(data) > limit:
        raise BrokenDocumentError(
            f"the list has {len(data)} bytes; the limit is {limit}", place=f"{name}:1", hint="split it"
        )
    root, repairs = _parse(data, name)
    body = next((child for child in root if split_name(child)[1].lower() == "body"), None)
    if split_name(root)[1].lower() != "opml" or body is None:
        raise BrokenDocumentError(
            "this is not an OPML document",
            place=f"{name}:{line_of(root)}",
            hint="export your subscriptions from your feed reader as OPML",
        )
    feeds: dict[str, OpmlFeed] = {}
    problems: list[InputError] = []
    for outline, folders in _outlines(body):
        place = f"{name}:{line_of(outline)}"
        try:
            feed = _feed(outline, folders, place)
            if feed.address in feeds:
                raise InvalidItemError(
                    f"{feed.address[:200]} occurs more than once in the list; only the first one is used", place=place
                )
            if len(feeds) == MAX_FEEDS:
                raise BrokenDocumentError(f"the list has more than {MAX_FEEDS} feeds", place=place, hint="split it")
        except InvalidItemError as problem:
            problems.append(problem)
        else:
            feeds[feed.address] = feed
    return OpmlList(tuple(feeds.values()), tuple(problems), tuple(repairs))


def _parse(data: bytes, name: str) -> tuple[etree._Element, list[str]]:
    """Parse a document, repairing it if necessary. Return its root and descriptions of the repairs."""
    repairs: list[str] = []
    try:
        text = decode_text(data, name).lstrip("\ufeff")
    except BrokenDocumentError as problem:
        text = guess_text(data)
        repairs.append(f"{problem}; the character encoding was guessed")
    try:
        return parse_xml(text, name), repairs
    except BrokenDocumentError as problem:
        if not isinstance(problem.__cause__, etree.XMLSyntaxError):
            raise
        first_error = problem
    for repair in (repair_xml, _repair_outlines):
        repaired = repair(text)
        if repaired is None:
            continue
        try:
            return parse_xml(repaired, name), [*repairs, f"{first_error}; this was repaired"]
        except BrokenDocumentError:
            continue
    raise first_error


def _repair_outlines(text: str) -> str | None:
    """Rebuild a document from its outline tags, with escaped attributes. Return None if it has no outlines.

    Everything else is left out. Unclosed folders are closed at the end, and surplus end tags are ignored.

    >>> _repair_outlines('<opml><body><outline text="The "Muse" & b" xmlUrl="https://a.example/"/></body>')
    '<opml><body><outline text="The &quot;Muse&quot; &amp; b" xmlUrl="https://a.example/"/></body></opml>'
    """
    parts = ["<opml><body>"]
    depth = 0
    for tag in _OUTLINE.finditer(_FORBIDDEN.sub("", text)):
        if tag["end"]:
            if depth:
                depth -= 1
                parts.append("</outline>")
            continue
        inner = tag["attributes"].rstrip()
        is_empty = inner.endswith("/")
        matches = _OUTLINE_ATTRIBUTE.finditer(inner.removesuffix("/"))
        values = {match["key"]: match["bare"] or match["value"] for match in matches}
        attributes = "".join(f" {key}={_quote(unescape(value))}" for key, value in values.items())
        parts.append(f"<outline{attributes}{'/' if is_empty else ''}>")
        depth += not is_empty
    if len(parts) == 1:
        return None
    parts.extend("</outline>" for _ in range(depth))
    return "".join(parts) + "</body></opml>"


def _outlines(body: etree._Element) -> Iterator[tuple[etree._Element, tuple[str, ...]]]:
    """Yield the outlines of feeds in document order, each with the titles of the folders that contain it."""
    waiting: list[tuple[etree._Element, tuple[str, ...]]] = [(child, ()) for child in reversed(body)]
    while waiting:
        outline, folders = waiting.pop()
        if split_name(outline)[1].lower() != "outline":
            continue
        if _attribute(outline, "xmlurl") or _attribute(outline, "type").lower() in ("rss", "atom"):
            yield outline, folders
            inner = folders
        else:
            title = _title(outline)
            inner = (*folders, title) if title else folders
        waiting.extend((child, inner) for child in reversed(outline))


def _feed(outline: etree._Element, folders: tuple[str, ...], place: str) -> OpmlFeed:
    address = _attribute(outline, "xmlurl") or _attribute(outline, "url")
    title = _title(outline)
    if not address:
        raise InvalidItemError(
            f"the outline {title[:60]!r} has no address", place=place, hint="add an xmlUrl attribute"
        )
    if len(address) > _MAX_ADDRESS_LENGTH or not _ADDRESS.match(address) or not address.isprintable():
        raise InvalidItemError(
            f"{address[:200]!r} is not a valid web address", place=place, hint="use an http or https URL"
        )
    if address[:5].lower() == "feed:":
        address = "http" + address[4:]
    home = _attribute(outline, "htmlurl")
    if (
        len(home) > _MAX_HOME_LENGTH
        or not re.match(r"https?://[^\s/?#]", home, re.IGNORECASE)
        or not home.isprintable()
    ):
        home = ""
    categories = (category.strip() for category in _attribute(outline, "category").split(","))
    return OpmlFeed(title or _host(address), address, folders, home, tuple(filter(None, categories)))


def _attribute(outline: etree._Element, name: str) -> str:
    """Return an attribute of an outline, ignoring the case of its name, or an empty string."""
    for key, value in outline.attrib.items():
        if str(key).lower() == name:
            return str(value).strip()
    return ""


def _title(outline: etree._Element) -> str:
    text = _attribute(outline, "title") or _attribute(outline, "text")
    return " ".join(text.split())[:_MAX_TITLE_LENGTH]


def _host(address: str) -> str:
    return re.split(r"[/?#]", address.partition("://")[2], maxsplit=1)[0].rpartition("@")[2].removeprefix("www.")


def write_opml(feeds: Sequence[OpmlFeed], title: str = "Runnel") -> bytes:
    """Return an OPML 2.0 document with these feeds and their folders.

    >>> read_opml(write_opml([OpmlFeed("Muse", "https://muse.example/rss", ("Music",))])).feeds[0].folders
    ('Music',)
    """
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<opml version="2.0"><head><title>{_quote(title)[1:-1]}</title></head><body>',
    ]
    open_folders: tuple[str, ...] = ()
    for feed in feeds:
        shared = 0
        while shared < min(len(open_folders), len(feed.folders)) and open_folders[shared] == feed.folders[shared]:
            shared += 1
        lines.extend("</outline>" for _ in open_folders[shared:])
        lines.extend(f"<outline text={_quote(folder)}>" for folder in feed.folders[shared:])
        open_folders = feed.folders
        title_value = _quote(feed.title)
        more = f" htmlUrl={_quote(feed.home)}" if feed.home else ""
        if feed.categories:
            more += f" category={_quote(','.join(category.replace(',', ' ') for category in feed.categories))}"
        lines.append(
            f'<outline type="rss" text={title_value} title={title_value} xmlUrl={_quote(feed.address)}{more}/>'
        )
    lines.extend("</outline>" for _ in open_folders)
    lines.append("</body></opml>\n")
    return "\n".join(lines).encode()


def _quote(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("", text).replace("\r", " "), {"\n": " ", "\t": " ", '"': "&quot;"})


def feed_names(feeds: Sequence[OpmlFeed], taken: Collection[str] = ()) -> list[str]:
    """Create a name for each feed from its title. Names are valid in statements and unique, ignoring case.

    >>> feed_names([OpmlFeed("The Muse: news & tours", "https://muse.example/"), OpmlFeed("7", "https://7.example/")])
    ['TheMuseNewsTours', 'Feed7']
    >>> feed_names([OpmlFeed("Muse", "https://a.example/"), OpmlFeed("muse", "https://b.example/")], taken=["Muse2"])
    ['Muse', 'Muse3']
    """
    used = {name.casefold() for name in taken}
    names: list[str] = []
    numbers: dict[str, int] = {}
    for feed in feeds:
        stem = _stem(feed.title) or _stem(_host(feed.address)) or "Feed"
        name, key = stem, stem.casefold()
        while name.casefold() in used:
            numbers[key] = numbers.get(key, 1) + 1
            name = f"{stem}{numbers[key]}"
        used.add(name.casefold())
        names.append(name)
    return names


def _stem(title: str) -> str:
    """Join the words of a title into a name with ASCII letters and digits only."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    words = re.findall(r"[A-Za-z0-9]+", plain.replace("'", ""))
    stem = "".join(word[:1].upper() + word[1:] for word in words)[:_MAX_NAME_LENGTH]
    return f"Feed{stem}" if stem[:1].isdigit() or stem.lower() in RESERVED else stem
