"""HTML and text for mails.

In: untrusted HTML, titles and names. Out: HTML without scripts, styles, forms and resources that a mail program would
fetch (a picture reports to its server who reads the mail, and when), the same as plain text, and single clean lines.
"""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser

from lxml import etree, html

from runnel.net.safe_html import HtmlCleaner, settle

LARGEST = 1 << 20
"""Maximum number of characters of HTML in a mail."""

_DEEPEST = 100
_JOINERS = frozenset("\u200c\u200d")


def _names(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


_BLOCKS = _names(
    "address article aside blockquote caption dd details div dl dt figcaption figure footer h1 h2 h3 h4 h5 h6 header "
    "hr li nav ol p pre section summary table tr ul"
)
_SPACED = _BLOCKS - _names("li dt dd tr caption summary")
_INLINE = _names(
    "a abbr b bdi bdo br cite code del dfn em i ins kbd mark q rp rt ruby s samp small span strong sub sup time u "
    "var wbr"
)
_CELLS = _names("tbody td tfoot th thead")
_SPACES = re.compile(r"\s+")
_CLEANER = HtmlCleaner(
    tags=set(_INLINE | _BLOCKS | _CELLS),
    clean_content_tags={"script", "style", "title", "template", "textarea", "noscript", "iframe", "svg", "math"},
    attributes={
        "*": {"lang", "dir", "title"},
        "a": {"href"},
        "ol": {"start"},
        "td": {"colspan", "rowspan"},
        "th": {"colspan", "rowspan"},
        "time": {"datetime"},
    },
)


class HtmlTooLargeError(Exception):
    """HTML that is too large or too deeply nested to be cleaned quickly."""


def one_line(text: str, limit: int) -> str:
    """Return a text as one line of at most `most` characters, without control and direction characters.

    >>> one_line("Muse\\r\\nBcc: all@muse.example\\u202e", 60)
    'Muse Bcc: all@muse.example'
    """
    cleaned = "".join(
        character if character.isprintable() or character in _JOINERS else " " for character in text[: limit * 4]
    )
    line = " ".join(cleaned.split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def safe_html(source: str) -> str:
    """Return HTML that is safe in a mail. Raise HtmlTooLargeError if cleaning it could take long.

    >>> safe_html('<p onclick="x()">Muse <img src="https://spy.example/p.gif"><a href="javascript:x()">tour</a></p>')
    '<p>Muse <a rel="noopener noreferrer">tour</a></p>'
    """
    if len(source) > LARGEST:
        raise HtmlTooLargeError(f"it has {len(source):,} characters; a mail may have {LARGEST:,}")
    return settle(_cleaned_once, source)


def _cleaned_once(source: str) -> str:
    if "<" not in source:
        return _CLEANER.clean(source)
    # Cleaning takes quadratic time in the depth of nesting, so a linear parser checks the depth first.
    parser = etree.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False, remove_comments=True)
    try:
        root = html.document_fromstring(source.encode("utf-8", "replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return ""  # only comments and similar nodes
    _refuse_depth(root)
    body = root.find("body")
    written: bytes = etree.tostring(root if body is None else body, method="html", encoding="utf-8")
    return _CLEANER.clean(written.decode("utf-8")).strip()


def _refuse_depth(root: etree._Element) -> None:
    depth = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > _DEEPEST:
            raise HtmlTooLargeError(f"elements are nested more than {_DEEPEST} deep")


def text_of_html(cleaned: str) -> str:
    """Convert cleaned HTML to plain text: one line per block, and links with their URLs.

    >>> text_of_html('<h1>Muse</h1><p>On <a href="https://muse.example/">tour</a></p><ul><li>Bern</li></ul>')
    'Muse\\n\\nOn tour <https://muse.example/>\\n\\n- Bern'
    """
    reading = _Reading()
    reading.feed(cleaned)
    reading.close()
    lines = [line.strip() for line in "".join(reading.parts).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Reading(HTMLParser):
    """Collects text. Its input comes from the cleaner, so it is well formed and bounded."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._links: list[str] = []
        self._verbatim = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)
        match tag:
            case "a":
                self._links.append(dict(attrs).get("href") or "")
            case "li":
                self.parts.append("- ")
            case "br":
                self.parts.append("\n")
            case "pre":
                self._verbatim += 1
            case "td" | "th":
                self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._links:
            link = self._links.pop()
            if link and "".join(self.parts[-1:]).strip() != link:
                self.parts.append(f" <{link}>")
        elif tag == "pre":
            self._verbatim -= 1
        self._break(tag)

    def handle_data(self, data: str) -> None:
        text = data.expandtabs(4) if self._verbatim else _SPACES.sub(" ", data)
        self.parts.append("".join(character for character in text if character == "\n" or _is_shown(character)))

    def _break(self, tag: str) -> None:
        if tag in _SPACED:
            self.parts.append("\n\n")
        elif tag in _BLOCKS and not "".join(self.parts[-1:]).endswith("\n"):
            self.parts.append("\n")


def _is_shown(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
