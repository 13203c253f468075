"""Sanitize HTML from untrusted sources: one rule for URLs, and cleaning that is idempotent.

In: untrusted HTML. Out: HTML in which every URL in any attribute is http, https or mailto, and which cleaning does
not change again. Browsers and programs on the path to the reader parse our output again. HTML that still changes
after several rounds could mean something different to each of them, so only its text is kept.
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

_MAX_ROUNDS = 6
# Browsers remove these characters from URLs before they read the scheme.
_DROPPED = re.compile(r"[\t\r\n\0]")
_EDGES = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FIRST_LINES = re.compile(r"(<pre(?:\s[^<>]*)?>)(?:\r?\n)+", re.IGNORECASE)
_TEXT_ONLY = nh3.Cleaner(tags=set())


def safe_url(value: str, base: str | None = None, *, relative: bool = False) -> str | None:
    """Return the URL if it is safe to publish, or None. Join a relative URL to the base, or keep it if `relative`.

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
    """Removes disallowed elements and attributes from HTML in one pass. `settle` repeats it until nothing changes."""

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
        """Return the allowed part of the HTML."""
        return self._cleaner.clean(html)

    def _attribute(self, element: str, name: str, value: str) -> str | None:
        if name in URL_LISTS:
            return None
        return safe_url(value, self._base, relative=self._relative) if name in URL_ATTRIBUTES else value


def settle(clean: Callable[[str], str], html: str) -> str:
    """Clean HTML until it no longer changes. If it does not converge, return its text.

    >>> settle(HtmlCleaner().clean, '<q cite="javascript:x()">Muse</q>')
    '<q>Muse</q>'
    >>> settle(lambda html: f"<b>{html}</b>", "Muse") == settle(lambda html: html, "Muse")
    True
    """
    # Browsers drop the first of them, so each pass would remove only one.
    html = _FIRST_LINES.sub(r"\1", html)
    for _ in range(_MAX_ROUNDS):
        cleaned = clean(html)
        if cleaned == html:
            return html
        html = cleaned
    return escape(" ".join(unescape(_TEXT_ONLY.clean(html)).split()), quote=False)
