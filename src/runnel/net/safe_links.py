"""Convert links from untrusted sources into absolute links, and accept only harmless schemes."""

from __future__ import annotations

import re
from urllib.parse import quote, urljoin, urlsplit

SAFE_SCHEMES = frozenset(
    {
        "http",
        "https",
        "mailto",
        "ftp",
        "ftps",
        "tel",
        "news",
        "nntp",
        "irc",
        "ircs",
        "xmpp",
        "geo",
        "magnet",
        "gemini",
    }
)
MAX_LINK = 8192

# Browsers ignore these characters anywhere in a URL, so "java\nscript:" would be a script.
_DROPPED = re.compile(r"[\t\r\n\0]")
_EDGES = "".join(map(chr, range(0x21)))
# Characters that a URL must escape (RFC 3986 §2), and those that would end it in a page.
_UNSAFE = re.compile(r'[\x00-\x20"<>\\^`{|}\x7f-\x9f]')
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def safe_link(text: str, base: str | None = None) -> str | None:
    """Return the absolute link, or None if it is missing or not safe to follow.

    >>> safe_link("../b?c=1", "https://muse.example/news/index.html")
    'https://muse.example/b?c=1'
    >>> safe_link(" java\\nscript:alert(1)") is None
    True
    >>> safe_link('https://muse.example/a b?q="<i>')
    'https://muse.example/a%20b?q=%22%3Ci%3E'

    >>> safe_link("https://muse.example/\\ud800") is None
    True

    A link into the document itself (`#note`) does not repeat the query string of the base: the address of a feed
    often has a secret there, and everybody who may read the feed sees the links of its items.

    >>> safe_link("#note", "https://muse.example/feed?token=secret")
    'https://muse.example/feed#note'
    """
    text = _UNSAFE.sub(_encoded, _DROPPED.sub("", text.strip(_EDGES)))
    if not text or len(text) > MAX_LINK:
        return None
    scheme = _SCHEME.match(text)
    if scheme:
        return text if scheme[1].lower() in SAFE_SCHEMES and _splits(text) else None
    try:
        joined = urljoin(re.split("[?#]", base, maxsplit=1)[0], text) if base else text
    except ValueError:
        return None
    scheme = _SCHEME.match(joined)
    return joined if _splits(joined) and (scheme is None or scheme[1].lower() in SAFE_SCHEMES) else None


def join_base(outer: str | None, inner: str | None) -> str | None:
    """Return the base of relative links, from the base of the surrounding element and the element's own base."""
    if not inner:
        return outer
    joined = safe_link(inner, outer)
    return joined if joined is not None and _SCHEME.match(joined) else outer


def _encoded(match: re.Match[str]) -> str:
    return quote(match[0], safe="")


def _splits(link: str) -> bool:
    if link.isascii() and "[" not in link and "]" not in link:
        return True  # only hosts in brackets and non-ASCII characters can fail
    try:
        link.encode()  # a lone surrogate, which JSON can express, is not a character
        urlsplit(link)
    except ValueError:
        return False
    return True
