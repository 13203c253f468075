"""HTML from outside that is passed on: one rule for URLs, and cleaning that changes nothing the second time.

In: HTML that nobody vouches for. Out: HTML in which every URL is http, https or mailto, in whatever attribute it is,
and which stays the same when it is cleaned again. A browser parses what we wrote once more, and so may other programs
between us and the reader. HTML that is still changing after some rounds would mean something else to each of them, so
only its text is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape
from typing import Final
from urllib.parse import urljoin

import nh3

URL_SCHEMES: Final = frozenset({"http", "https", "mailto"})
URL_ATTRIBUTES: Final = frozenset(
    {"action", "background", "cite", "classid", "codebase", "data", "dynsrc", "formaction", "href", "icon"}
    | {"longdesc", "lowsrc", "manifest", "poster", "profile", "src", "usemap", "xlink:href", "xml:base"}
)
"""Attributes whose value is a URL."""

URL_LISTS: Final = frozenset({"archive", "attributionsrc", "imagesrcset", "ping", "srcdoc", "srcset", "style"})
"""Attributes that contain several URLs, or other languages that contain URLs. They are removed."""

_MOST_ROUNDS = 6
# Browsers remove these characters from URLs before they read the scheme.
_DROPPED = re.compile(r"[\t\r\n\0]")
_EDGES = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FIRST_LINES = re.compile(r"(<pre(?:\s[^<>]*)?>)(?:\r?\n)+", re.IGNORECASE)
_TEXT_ONLY = nh3.Cleaner(tags=set())


def safe_url(value: str, base: str | None = None, *, relative: bool = False) -> str | None:
    """A URL that may be passed on, or None. Relative URLs are joined to the base, or kept if they are allowed.

    >>> safe_url("https://muse.example/"), safe_url("java\\nscript:alert(1)"), safe_url("/tour")
    ('https://muse.example/', None, None)
    >>> safe_url("/tour", "https://muse.example/news"), safe_url("/tour", relative=True)
    ('https://muse.example/tour', '/tour')
    """
    url = _DROPPED.sub("", value.strip(_EDGES))
    if not _SCHEME.match(url) and base is not None:
        try:
            url = urljoin(base, url)
        except ValueError:
            return None
    scheme = _SCHEME.match(url)
    if scheme is None:
        return url if relative else None
    return url if scheme[1].lower() in URL_SCHEMES else None


class HtmlCleaner:
    """Removes what is not allowed from HTML, in one pass; `settle` makes the result stable."""

    def __init__(
        self,
        *,
        tags: set[str] | None = None,
        attributes: dict[str, set[str]] | None = None,
        clean_content_tags: set[str] | None = None,
        base: str | None = None,
        relative: bool = False,
    ) -> None:
        self._base = base
        self._relative = relative
        self._cleaner = nh3.Cleaner(
            tags=tags,
            attributes=attributes,
            clean_content_tags=clean_content_tags,
            url_schemes=set(URL_SCHEMES),
            attribute_filter=self._attribute,
            link_rel="noopener noreferrer",
        )

    def clean(self, html: str) -> str:
        """The allowed part of some HTML."""
        return self._cleaner.clean(html)

    def _attribute(self, element: str, name: str, value: str) -> str | None:
        if name in URL_LISTS:
            return None
        return safe_url(value, self._base, relative=self._relative) if name in URL_ATTRIBUTES else value


def settle(clean: Callable[[str], str], html: str) -> str:
    """HTML cleaned until it stays the same; if it does not settle, its text.

    >>> settle(HtmlCleaner().clean, '<q cite="javascript:x()">Muse</q>')
    '<q>Muse</q>'
    >>> settle(lambda html: f"<b>{html}</b>", "Muse") == settle(lambda html: html, "Muse")
    True
    """
    # Each pass would remove one of them, as browsers remove the first.
    html = _FIRST_LINES.sub(r"\1", html)
    for _ in range(_MOST_ROUNDS):
        cleaned = clean(html)
        if cleaned == html:
            return html
        html = cleaned
    return escape(" ".join(unescape(_TEXT_ONLY.clean(html)).split()), quote=False)
