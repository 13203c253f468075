"""HTML from outside: to the plain text that conditions see, and to HTML that is safe to show.

In: a fragment of HTML, however broken. Out: `read_markup` gives its text and its safe HTML. The fragment is first
rewritten by one linear pass into well-nested elements of bounded depth, because an HTML5 parser needs quadratic
time (and more) for what is nested without end. Then `net.safe_html` decides what is safe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape, unescape

from runnel.net.safe_html import HtmlCleaner, settle
from runnel.net.safe_links import safe_link

_DEEPEST = 64
_LONGEST_TAG = 16384
_SLOPPY_AFTER = 64


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_VOID = _names("br hr img wbr col")
_INLINE = _names(
    "a abbr acronym b bdi bdo cite code data del dfn em i ins kbd mark q rp rt rtc ruby s samp small span strike "
    "strong sub sup time tt u var wbr font label big"
)
_BLOCKS = _names(
    "article aside blockquote br caption center col colgroup dd details div dl dt figcaption figure footer h1 h2 h3 "
    "h4 h5 h6 header hgroup hr img li nav ol p pre summary table tbody td th thead tr ul"
)
_ALLOWED = (_INLINE - {"font", "label", "big"}) | _BLOCKS
_HIDDEN = _names("script style template iframe noembed noframes textarea title select svg math head")
_ENDED_BY = {
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "tr": frozenset({"tr", "td", "th"}),
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
}
"""Elements whose end is implied by the start of another."""

_TAG = re.compile(r"""<(/?)([A-Za-z][^\s/>"'<=]*+)((?:[^>"']|"[^"]*+"|'[^']*+')*+)>""")
_ATTRIBUTE = re.compile(r"""([A-Za-z][A-Za-z-]*+)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""")
_KEPT = _names("href src alt title cite datetime colspan rowspan width height lang dir start")
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
    """What a fragment says, and how it may be shown."""

    text: str
    html: str


def read_markup(source: str, base: str | None = None) -> ReadMarkup:
    """The plain text of a fragment of HTML, and the fragment made safe, with absolute links.

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
    writing = _Writing(base)
    for tag in _tags(source):
        writing.take(tag)
    writing.end_all()
    return ReadMarkup(tidy_spaces("".join(writing.text)), _CLEANER.clean("".join(writing.html)).strip())


def plain_text(source: str) -> str:
    """The text of a fragment on one line, for titles.

    >>> plain_text("Rock &amp;  <b>Roll</b>: 1 < 2")
    'Rock & Roll: 1 < 2'
    """
    if "<" not in source and "&" not in source:
        return " ".join(source.split())
    writing = _Writing(None)
    for tag in _tags(source):
        writing.take(tag)
    return " ".join("".join(writing.text).split())


def tidy_spaces(text: str) -> str:
    """Runs of spaces as one, runs of line ends as one line end."""
    return _BREAKS.sub("\n", _SPACES.sub(" ", text)).strip()


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag with the text before it; the last one of a fragment has no name."""

    before: str
    name: str = ""
    closing: bool = False
    attributes: str = ""


@dataclass(slots=True)
class _Writing:
    """The two results while they grow, and the elements that are open."""

    base: str | None
    text: list[str] = field(default_factory=list)
    html: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def take(self, tag: _Tag) -> None:
        if tag.before:
            shown = unescape(tag.before)
            self.text.append(shown.replace("\n", " "))
            self.html.append(escape(shown, quote=False))
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
        elif len(self.open) < _DEEPEST:
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
        kept: dict[str, str] = {}
        for found in _ATTRIBUTE.finditer(source):
            name = found[1].lower()
            if name not in _KEPT or name in kept:
                continue
            value = unescape(found[2] or found[3] or found[4] or "")
            if name in _LINKS:
                value = safe_link(value, self.base) or ""
            # Angle brackets are legal in an attribute, and a trap where the HTML is put inside other HTML.
            value = value.replace("<", "%3C").replace(">", "%3E") if name in _LINKS else value.translate(_NO_BRACKETS)
            if value:
                kept[name] = value
        return "".join(f' {name}="{escape(value)}"' for name, value in kept.items())


def _tags(source: str) -> Iterator[_Tag]:
    """The tags of a fragment in order, each with the text before it; comments and hidden elements are left out.

    Linear: every step goes on after what it looked at, but for a bounded number of tags with a quote left open.
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
        found = None
        if close < len(source) and failures < _SLOPPY_AFTER and (following.isalpha() or following == "/"):
            found = _TAG.match(source, start, start + _LONGEST_TAG)
            failures += found is None
        if found is None:
            # A lone "<" is text; the end of a tag that cannot be read is the next ">".
            readable = (following.isalpha() or following == "/") and close < len(source)
            before.append("" if readable else "&lt;")
            position = close + 1 if readable else start + 1
            continue
        name, closing = found[2].lower(), found[1] == "/"
        position = found.end()
        if name in _HIDDEN and not closing and not found[3].endswith("/"):
            position = _after_hidden(source, name, position)
        yield _Tag("".join(before), name, closing, found[3])
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
    """Where a hidden element ends; one that never ends hides the rest, as in a browser."""
    end = re.compile(rf"</{name}\b", re.IGNORECASE).search(source, position)
    close = -1 if end is None else source.find(">", end.end())
    return len(source) if close < 0 else close + 1
