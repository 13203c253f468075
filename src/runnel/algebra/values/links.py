"""Links. In: texts, of whatever kind and from whomever. Out: the links in them, in one form, and where they stand.

One form: scheme and host in lower case (hosts beyond ASCII by IDNA), no user, no default port, no fragment, `.` and
`..` resolved, an empty path as `/`, percent signs only where they are needed. What cannot be read is no link; nothing
here raises. A text that is a link as a whole has just that one; any other has its http(s) URLs and those that `href`
attributes of HTML name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import quote

import idna

LONGEST_LINK = 8192
_REMEMBERED = 1 << 14
"""Texts up to this length are remembered with their links: many conditions ask about the same item in a row."""

_LINK = re.compile(
    r"""\s*+([A-Za-z][A-Za-z0-9+.-]{0,31})://   # scheme
        ([^/?\#\\\s]*+)                         # user, host and port
        (/[^?\#\s]*+)?                          # path
        (?:\?([^\#\s]*+))?                      # query
        (?:\#\S*+)?\s*+""",
    re.VERBOSE,
)
_PLACE = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::([0-9]{0,5}))?")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_][a-z0-9_-]{0,62}(?:\.[a-z0-9_][a-z0-9_-]{0,62})*")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PORTS = {"http": 80, "https": 443, "ftp": 21, "ws": 80, "wss": 443}

_OCCURRENCE = re.compile(
    r"""\bhref\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)')
      | (?P<plain>https?://[^\s<>"'`\u3000-\u303f\uff00-\uff0f]{1,8192}+)""",
    re.VERBOSE | re.IGNORECASE,
)
_AMPERSAND = re.compile(r"&(?:amp|\#38|\#x26);", re.IGNORECASE)
_SENTENCE = frozenset(".,;:!?*_~")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))


class Link(NamedTuple):
    """A link in one form, its host, and from where to where it stands in its text."""

    url: str
    host: str
    start: int
    end: int


def canonical_link(text: str) -> str | None:
    """A link in one form, or None where the text is none.

    >>> canonical_link("HTTPS://Bücher.Example:443/a/../b#top"), canonical_link("not a link")
    ('https://xn--bcher-kva.example/b', None)
    """
    link = _read(text)
    return None if link is None else link.url


def canonical_host(text: str) -> str | None:
    """A host in one form: a name as DNS has it, or an IP address; None where the text is neither.

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
        raise ValueError("a host's name has at most 253 characters")
    return idna.encode(text, uts46=True).decode("ascii")


def links_in(text: str) -> tuple[Link, ...]:
    """The links of a text, in order.

    >>> [link.url for link in links_in("see (https://muse.example/a), or http://MUSE.example.")]
    ['https://muse.example/a', 'http://muse.example/']
    """
    if "://" not in text:
        return ()
    return _remembered(text) if len(text) <= _REMEMBERED else tuple(_found(text))


@lru_cache(maxsize=128)
def _remembered(text: str) -> tuple[Link, ...]:
    return tuple(_found(text))


def _found(text: str) -> Iterator[Link]:
    whole = _read(text)
    if whole is not None:
        yield whole._replace(start=len(text) - len(text.lstrip()), end=len(text.rstrip()))
        return
    for found in _OCCURRENCE.finditer(text):
        kind = found.lastgroup or "plain"
        start, end = found.span(kind)
        if kind == "plain":
            end = start + len(_unpunctuated(found[kind]))
        link = _read(_AMPERSAND.sub("&", text[start:end]))
        if link is not None:
            yield link._replace(start=start, end=end)


def _unpunctuated(text: str) -> str:
    """A link in running text, without what ends the sentence or closes a bracket that stands before it."""
    unopened = {closing: text.count(closing) - text.count(opening) for opening, closing in _BRACKETS}
    end = len(text)
    while end and (text[end - 1] in _SENTENCE or unopened.get(text[end - 1], 0) > 0):
        end -= 1
        if text[end] in unopened:
            unopened[text[end]] -= 1
    return text[:end]


def _read(text: str) -> Link | None:
    if len(text) > LONGEST_LINK:
        return None
    found = _LINK.fullmatch(text)
    place = _PLACE.fullmatch(found[2].rpartition("@")[2]) if found else None
    host = canonical_host(place[1]) if place else None
    if found is None or place is None or host is None or _CONTROL.search(text.strip()):
        return None
    scheme, port = found[1].lower(), int(place[2]) if place[2] else None
    if port is not None and port > 65535:
        return None
    behind = "" if port in (None, _PORTS.get(scheme)) else f":{port}"
    query = f"?{_escaped(found[4])}" if found[4] else ""
    shown = f"[{host}]" if ":" in host else host
    return Link(f"{scheme}://{shown}{behind}{_resolved(_escaped(found[3] or '/'))}{query}", host, 0, len(text))


def _escaped(text: str) -> str:
    """Percent signs only where they are needed, and in capitals."""
    if text.isascii() and "%" not in text:
        return text

    def plain(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        return character if _UNRESERVED.match(character) else found[0].upper()

    # Everything of ASCII stays: only what is beyond it must be written in percent signs.
    return _ESCAPED.sub(plain, quote(text, safe=_ASCII))


_ASCII = "".join(map(chr, range(0x21, 0x7F)))


def _resolved(path: str) -> str:
    """A path without `.` and `..` (RFC 3986 §5.2.4)."""
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
    """Whether a link leads to a target: a URL, or a host and all below it. Targets are in canonical form.

    >>> [leads_to(link, "muse.example") for link in links_in("http://www.muse.example/ https://xmuse.example/")]
    [True, False]
    """
    if "://" in target:
        return link.url == target
    # Nothing lies below an address, and a name whose last label is a number is one.
    below = link.host.endswith("." + target) and not target.rpartition(".")[2].isdigit()
    return link.host == target or below


def lies_below(link: Link, prefix: str) -> bool:
    """Whether a link leads to a URL or below its path, segment by segment; the query is not looked at.

    >>> [lies_below(link, "http://a.example/news") for link in links_in("http://a.example/news/1 http://a.example/newsx")]
    [True, False]
    """
    path = link.url.partition("?")[0].rstrip("/")
    prefix = prefix.rstrip("/")
    return path == prefix or path.startswith(prefix + "/")
