"""Converts HTML from outside to plain text, for conditions, and to HTML that is safe to show.

In: a fragment of HTML, which may be broken. Out: `read_markup` returns its text and its safe HTML. First, a linear
pass rewrites the fragment into properly nested elements of limited depth, because an HTML5 parser needs quadratic
time or more for very deep nesting. Then `net.safe_html` removes everything unsafe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape

from runnel.net.safe_html import HtmlCleaner, settle
from runnel.net.safe_links import safe_link

_MAX_DEPTH = 64
_MAX_TAG_LENGTH = 16384
_MAX_FAILED_MATCHES = 64


def _split_names(names: str) -> frozenset[str]:
    return frozenset(names.split())


_VOID = _split_names("br hr img wbr col")
_INLINE = _split_names(
    "a abbr acronym b bdi bdo cite code data del dfn em i ins kbd mark q rp rt rtc ruby s samp small span strike "
    "strong sub sup time tt u var wbr font label big"
)
_BLOCKS = _split_names(
    "article aside blockquote br caption center col colgroup dd details div dl dt figcaption figure footer h1 h2 h3 "
    "h4 h5 h6 header hgroup hr img li nav ol p pre summary table tbody td th thead tr ul"
)
_ALLOWED = (_INLINE - {"font", "label", "big"}) | _BLOCKS
_HIDDEN = _split_names("script style template iframe noembed noframes textarea title select svg math head")
_ENDED_BY = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": frozenset({"tr", "td", "th"}),
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
}
"""For each starting element, the open elements that it ends implicitly."""

_TAG = re.compile(r"""<(/?)([A-Za-z][^\s/>"'<=]*+)((?:[^>"']|"[^"]*+"|'[^']*+')*+)>""")
_ATTRIBUTE = re.compile(r"""([A-Za-z][A-Za-z-]*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""")
_ALLOWED_ATTRIBUTES = _split_names("href src alt title cite datetime colspan rowspan width height lang dir start")
_NO_BRACKETS = {ord("<"): None, ord(">"): None}
_LINKS = frozenset({"href", "src", "cite"})
_SPACES = re.compile(r"[ \t\r\f\v\xa0\u2000-\u200a\u202f\u3000]+")
_BREAKS = re.compile(r" ?\n[ \n]*")

_CLEANER = HtmlCleaner(
    tags=set(_ALLOWED),
    attributes={
        "*": {"lang", "dir", "title"},
        "a": {"href"},
        "img": {"src", "alt", "width", "height"},
        "blockquote": {"cite"},
        "q": {"cite"},
        "ins": {"cite", "datetime"},
        "del": {"cite", "datetime"},
        "time": {"datetime"},
        "td": {"colspan", "rowspan"},
        "th": {"colspan", "rowspan"},
        "ol": {"start"},
    },
    relative=True,
)


@dataclass(frozen=True, slots=True)
class ReadMarkup:
    """The plain text and the safe HTML of a fragment."""

    text: str
    html: str


def read_markup(source: str, base: str | None = None) -> ReadMarkup:
    """Return the plain text of a fragment of HTML, and its safe HTML, with links resolved against `base`.

    Reading the safe HTML again gives the same HTML.

    >>> read = read_markup('<p>Muse &amp; co</p><script>steal()</script><a href="/tour" onclick="x()">tour')
    >>> read.text
    'Muse & co\\ntour'
    >>> read.html
    '<p>Muse &amp; co</p><a href="/tour" rel="noopener noreferrer">tour</a>'
    """
    read = _read_once(source.encode("utf-8", "replace").decode(), base)
    return ReadMarkup(read.text, settle(lambda html: _read_once(html, base).html, read.html))


def _read_once(source: str, base: str | None) -> ReadMarkup:
    if "<" not in source and "&" not in source:
        text = " ".join(source.split())
        return ReadMarkup(text, escape(text, quote=False))
    writer = _Writer(base)
    for tag in _tags(source):
        writer.add(tag)
    writer.end_all()
    return ReadMarkup(tidy_spaces("".join(writer.text)), _CLEANER.clean("".join(writer.html)).strip())


def plain_text(source: str) -> str:
    """Return the text of a fragment on one line, for titles.

    >>> plain_text("Rock &amp;  <b>Roll</b>: 1 < 2")
    'Rock & Roll: 1 < 2'
    """
    if "<" not in source and "&" not in source:
        return " ".join(source.split())
    writer = _Writer(None)
    for tag in _tags(source):
        writer.add(tag)
    return " ".join("".join(writer.text).split())


def tidy_spaces(text: str) -> str:
    """Replace runs of spaces by one space, and runs of line ends by one line end."""
    return _BREAKS.sub("\n", _SPACES.sub(" ", text)).strip()


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag with the text before it. The text after the last tag has a tag without a name."""

    before: str
    name: str = ""
    closing: bool = False
    attributes: str = ""


@dataclass(slots=True)
class _Writer:
    """Collects the text and the HTML, and the names of the open elements."""

    base: str | None
    text: list[str] = field(default_factory=list)
    html: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def add(self, tag: _Tag) -> None:
        if tag.before:
            text = unescape(tag.before)
            self.text.append(text.replace("\n", " "))
            self.html.append(escape(text, quote=False))
        name = tag.name
        if name and name not in _INLINE:
            self.text.append("\n")
        if name not in _ALLOWED:
            return
        if tag.closing:
            self._end(name)
        else:
            self._start(name, tag.attributes)

    def _start(self, name: str, attributes: str) -> None:
        while self.open and self._implies_end(name, self.open[-1]):
            self._end(self.open[-1])
        if name in _VOID:
            self.html.append(f"<{name}{self._attributes(attributes)}>")
        elif len(self.open) < _MAX_DEPTH:
            self.html.append(f"<{name}{self._attributes(attributes)}>")
            self.open.append(name)

    @staticmethod
    def _implies_end(starting: str, latest: str) -> bool:
        if latest == "p":
            return starting in _BLOCKS and starting not in _VOID
        return latest in _ENDED_BY.get(starting, ())

    def _end(self, name: str) -> None:
        if name not in self.open:
            return
        while True:
            latest = self.open.pop()
            self.html.append(f"</{latest}>")
            if latest == name:
                return

    def end_all(self) -> None:
        while self.open:
            self.html.append(f"</{self.open.pop()}>")

    def _attributes(self, source: str) -> str:
        if "=" not in source:
            return ""
        attributes: dict[str, str] = {}
        for match in _ATTRIBUTE.finditer(source):
            name = match[1].lower()
            if name not in _ALLOWED_ATTRIBUTES or name in attributes:
                continue
            value = unescape(match[2] or match[3] or match[4] or "")
            if name in _LINKS:
                value = safe_link(value, self.base) or ""
            # Angle brackets are legal in an attribute, but dangerous if the HTML is inserted into other HTML.
            value = value.replace("<", "%3C").replace(">", "%3E") if name in _LINKS else value.translate(_NO_BRACKETS)
            if value:
                attributes[name] = value
        return "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())


def _tags(source: str) -> Iterator[_Tag]:
    """Yield the tags of a fragment in order, each with the text before it, without comments and hidden elements.

    The time is linear: each step continues after the characters that it read, except for a limited number of tags
    with an unclosed quote.
    """
    before: list[str] = []
    position = failures = 0
    close = -1
    while True:
        start = source.find("<", position)
        if start < 0:
            before.append(source[position:])
            break
        before.append(source[position:start])
        following = source[start + 1 : start + 2]
        if following in ("!", "?"):
            position = _after_comment(source, start)
            continue
        if close < start:
            close = source.find(">", start)
            close = len(source) if close < 0 else close
        match = None
        if close < len(source) and failures < _MAX_FAILED_MATCHES and (following.isalpha() or following == "/"):
            match = _TAG.match(source, start, start + _MAX_TAG_LENGTH)
            failures += match is None
        if match is None:
            # A single "<" is text. A tag that cannot be parsed ends at the next ">".
            is_tag = (following.isalpha() or following == "/") and close < len(source)
            before.append("" if is_tag else "&lt;")
            position = close + 1 if is_tag else start + 1
            continue
        name, closing = match[2].lower(), match[1] == "/"
        position = match.end()
        if name in _HIDDEN and not closing and not match[3].endswith("/"):
            position = _after_hidden(source, name, position)
        yield _Tag("".join(before), name, closing, match[3])
        before = []
    yield _Tag("".join(before))


def _after_comment(source: str, start: int) -> int:
    if source.startswith("<!--", start):
        end = source.find("-->", start + 4)
        return len(source) if end < 0 else end + 3
    if source.startswith("<![CDATA[", start):
        return start + 9
    end = source.find(">", start)
    return len(source) if end < 0 else end + 1


def _after_hidden(source: str, name: str, position: int) -> int:
    """Return the position after a hidden element. If it is not closed, it hides the rest, as in a browser."""
    end = re.compile(rf"</{name}\b", re.IGNORECASE).search(source, position)
    close = -1 if end is None else source.find(">", end.end())
    return len(source) if close < 0 else close + 1
