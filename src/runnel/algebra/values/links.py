"""Extraction of links. In: any text. Out: the links in it, in canonical form, and their positions.

In canonical form, scheme and host are in lower case (non-ASCII hosts by IDNA), there is no user, default port or
fragment, `.` and `..` are resolved, an empty path is `/`, and only characters that need it are percent-encoded. An
invalid link is ignored; nothing here raises an error. A text that is a link as a whole has only this link. Any other
text has its http(s) URLs and the URLs in `href` attributes of HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import quote

import idna

MAX_LINK_LENGTH = 8192
_MAX_CACHED_LENGTH = 1 << 14
"""The links of texts up to this length are cached, because many conditions read the same item in a row."""

_LINK = re.compile(
    r"""\s*+([A-Za-z][A-Za-z0-9+.-]{0,31})://   # scheme
        ([^/?\#\\\s]*+)                         # user, host and port
        (/[^?\#\s]*+)?                          # path
        (?:\?([^\#\s]*+))?                      # query
        (?:\#\S*+)?\s*+""",
    re.VERBOSE,
)
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::([0-9]{0,5}))?")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_][a-z0-9_-]{0,62}(?:\.[a-z0-9_][a-z0-9_-]{0,62})*")
_PERCENT_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PORTS = {"http": 80, "https": 443, "ftp": 21, "ws": 80, "wss": 443}

_OCCURRENCE = re.compile(
    r"""\bhref\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)')
      | (?P<plain>https?://[^\s<>"'`\u3000-\u303f\uff00-\uff0f]{1,8192}+)""",
    re.VERBOSE | re.IGNORECASE,
)
_AMPERSAND = re.compile(r"&(?:amp|\#38|\#x26);", re.IGNORECASE)
_SENTENCE_SIGNS = frozenset(".,;:!?*_~")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


class Link(NamedTuple):
    """A link in canonical form, its host, and its offsets in the text."""

    url: str
    host: str
    start: int
    end: int


def canonical_link(text: str) -> str | None:
    """Return a link in canonical form, or None if the text is not a link.

    >>> canonical_link("HTTPS://Bücher.Example:443/a/../b#top"), canonical_link("not a link")
    ('https://xn--bcher-kva.example/b', None)
    """
    link = _parse(text)
    return None if link is None else link.url


def canonical_host(text: str) -> str | None:
    """Return a host in canonical form, a DNS name or an IP address, or None if the text is neither.

    >>> canonical_host("Bücher.example."), canonical_host("[2001:DB8::0:1]"), canonical_host("a/b")
    ('xn--bcher-kva.example', '2001:db8::1', None)
    """
    try:
        if text.startswith("["):
            return str(IPv6Address(text[1:-1].partition("%")[0])) if text.endswith("]") else None
        host = text.lower() if text.isascii() else _idna(text)
    except ValueError:
        return None
    host = host.removesuffix(".")
    return host if _HOST.fullmatch(host) else None


def _idna(text: str) -> str:
    if len(text) > 253:
        raise ValueError("host names must have at most 253 characters")
    return idna.encode(text, uts46=True).decode("ascii")


def links_in(text: str) -> tuple[Link, ...]:
    """Return the links of a text, in order.

    >>> [link.url for link in links_in("see (https://muse.example/a), or http://MUSE.example.")]
    ['https://muse.example/a', 'http://muse.example/']
    """
    if "://" not in text:
        return ()
    return _cached_links(text) if len(text) <= _MAX_CACHED_LENGTH else tuple(_find_links(text))


@lru_cache(maxsize=128)
def _cached_links(text: str) -> tuple[Link, ...]:
    return tuple(_find_links(text))


def _find_links(text: str) -> Iterator[Link]:
    whole = _parse(text)
    if whole is not None:
        yield whole._replace(start=len(text) - len(text.lstrip()), end=len(text.rstrip()))
        return
    for match in _OCCURRENCE.finditer(text):
        kind = match.lastgroup or "plain"
        start, end = match.span(kind)
        if kind == "plain":
            end = start + len(_strip_punctuation(match[kind]))
        link = _parse(_AMPERSAND.sub("&", text[start:end]))
        if link is not None:
            yield link._replace(start=start, end=end)


def _strip_punctuation(text: str) -> str:
    """Return a link in running text without punctuation at its end, such as a bracket that was opened before it."""
    unopened = {closing: text.count(closing) - text.count(opening) for opening, closing in _BRACKETS}
    end = len(text)
    while end and (text[end - 1] in _SENTENCE_SIGNS or unopened.get(text[end - 1], 0) > 0):
        end -= 1
        if text[end] in unopened:
            unopened[text[end]] -= 1
    return text[:end]


def _parse(text: str) -> Link | None:
    if len(text) > MAX_LINK_LENGTH:
        return None
    match = _LINK.fullmatch(text)
    location = _HOST_AND_PORT.fullmatch(match[2].rpartition("@")[2]) if match else None
    host = canonical_host(location[1]) if location else None
    if match is None or location is None or host is None or _CONTROL.search(text.strip()):
        return None
    scheme, port = match[1].lower(), int(location[2]) if location[2] else None
    if port is not None and port > 65535:
        return None
    port_suffix = "" if port in (None, _PORTS.get(scheme)) else f":{port}"
    path = _resolve_dots(_normalize_escapes(match[3] or "/"))
    query = f"?{_normalize_escapes(match[4])}" if match[4] else ""
    shown_host = f"[{host}]" if ":" in host else host
    return Link(f"{scheme}://{shown_host}{port_suffix}{path}{query}", host, 0, len(text))


def _normalize_escapes(text: str) -> str:
    """Percent-encode only the characters that need it, with upper-case digits."""
    if text.isascii() and "%" not in text:
        return text

    def normalize(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if _UNRESERVED.match(character) else match[0].upper()

    # Only non-ASCII characters are percent-encoded; printable ASCII stays as it is.
    return _PERCENT_ESCAPE.sub(normalize, quote(text, safe=_ASCII_CHARACTERS))


_ASCII_CHARACTERS = "".join(map(chr, range(0x21, 0x7F)))


def _resolve_dots(path: str) -> str:
    """Return a path without `.` and `..` (RFC 3986 §5.2.4)."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept) + ("/" if kept and segments[-1] in (".", "..") else "")


def leads_to(link: Link, target: str) -> bool:
    """Return whether a link leads to a target in canonical form: a URL, or a host and its subdomains.

    >>> [leads_to(link, "muse.example") for link in links_in("http://www.muse.example/ https://xmuse.example/")]
    [True, False]
    """
    if "://" in target:
        return link.url == target
    # An IP address, whose last label is a number, has no subdomains.
    is_subdomain = link.host.endswith("." + target) and not target.rpartition(".")[2].isdigit()
    return link.host == target or is_subdomain


def lies_below(link: Link, prefix: str) -> bool:
    """Return whether a link leads to a URL or below its path. Paths are compared by segments, ignoring the query.

    >>> [lies_below(link, "http://a.example/news") for link in links_in("http://a.example/news/1 http://a.example/newsx")]
    [True, False]
    """
    path = link.url.partition("?")[0].rstrip("/")
    prefix = prefix.rstrip("/")
    return path == prefix or path.startswith(prefix + "/")
