"""Repairs XML that is nearly well-formed, so that the strict decoders can read it.

In: the text of a feed that is not well-formed XML. Out: `repair_xml` returns the text with its most common errors
repaired, or None if it has no root element or no complete entry. The repaired text goes through the same security
checks as any other. Every step is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html.entities import html5

from runnel.sources.documents.extensions import PREFIXES

_FEED_START = re.compile(r"<(?:\?xml\s|rss[\s>]|rdf:RDF[\s>]|feed[\s>])", re.IGNORECASE)
_MAX_JUNK_LENGTH = 8192
_DECLARATION = re.compile(r"<\?xml\s[^<>]{0,200}\?>", re.IGNORECASE)
_ROOT = re.compile(r"[A-Za-z_][\w.:-]{0,99}")
_ENTRY_END = re.compile(r"</(?:[A-Za-z_][\w.-]{0,30}:)?(?:item|entry)\s{0,9}>", re.IGNORECASE)
_CHANNEL_END = re.compile(r"</((?:[A-Za-z_][\w.-]{0,30}:)?channel)\s{0,9}>")
_CHANNEL_START = re.compile(r"<((?:[A-Za-z_][\w.-]{0,30}:)?channel)[\s>]")
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_REFERENCE = re.compile(r"&(?:(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));)?")
_LONE_BRACKET = re.compile(r"<(?![A-Za-z_:/!?])")
_USED_PREFIX = re.compile(r"</?([A-Za-z_][\w.-]{0,30}):[A-Za-z_]")
_DECLARED_PREFIX = re.compile(r"\sxmlns:([A-Za-z_][\w.-]{0,30})\s{0,9}=")
_MAX_PREFIXES = 50
_NAMESPACES = {prefix: namespace for namespace, prefix in reversed(PREFIXES.items())}


def find_feed_start(text: str) -> int:
    """Return the position where a feed starts, possibly after other text such as a server's warning, or -1.

    >>> find_feed_start("Warning: no cache\\n<rss version='2.0'>")
    18
    """
    match = _FEED_START.search(text, 0, _MAX_JUNK_LENGTH)
    return -1 if match is None else match.start()


def repair_xml(text: str) -> str | None:
    """Repair XML: remove text around the root, cut it after the last complete entry, and escape characters.

    >>> repair_xml("<rss><channel><item><title>Q&A: 1 < 2</title></item><item><tit")
    '<rss><channel><item><title>Q&amp;A: 1 &lt; 2</title></item></channel></rss>'
    """
    text = text[max(0, find_feed_start(text)) :]
    text = _change_outside_cdata(text, _escape_characters)
    text = _without_declarations(text)
    start = _root_start(text)
    name = None if start < 0 else _ROOT.match(text, start + 1)
    if name is None:
        return None
    ended = _end_root(text, name[0])
    return None if ended is None else _declare_prefixes(ended, name.end())


def _change_outside_cdata(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to the text outside CDATA sections. Remove characters that XML forbids everywhere."""
    text = _FORBIDDEN.sub("", text)
    parts: list[str] = []
    position = 0
    while position < len(text):
        start = text.find("<![CDATA[", position)
        start = len(text) if start < 0 else start
        parts.append(change(text[position:start]))
        end = text.find("]]>", start)
        position = len(text) if end < 0 else end
        parts.append(text[start:position])
    return "".join(parts)


def _escape_characters(text: str) -> str:
    return _LONE_BRACKET.sub("&lt;", _REFERENCE.sub(_repair_reference, text))


def _repair_reference(match: re.Match[str]) -> str:
    decimal, hexadecimal, named = match.groups()
    if named is not None:
        return match[0] if f"{named};" in html5 else "&amp;" + match[0][1:]
    if decimal is None and hexadecimal is None:
        return "&amp;"
    code = int(decimal) if decimal is not None else int(hexadecimal, 16)
    is_allowed = code in (9, 10, 13) or 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or 0x10000 <= code < 0x110000
    return f"&#{code};" if is_allowed else ""


def _without_declarations(text: str) -> str:
    """Remove every `<?xml …?>` before the root: the charset is known, and a second declaration is an error."""
    start = max(0, _root_start(text))
    return _DECLARATION.sub("", text[:start]) + text[start:]


def _root_start(text: str) -> int:
    position = text.find("<")
    while position >= 0:
        following = text[position + 1 : position + 2]
        if following not in ("?", "!"):
            return position
        end = "-->" if text.startswith("<!--", position) else "?>" if following == "?" else ">"
        position = text.find(end, position)
        position = -1 if position < 0 else text.find("<", position)
    return -1


def _end_root(text: str, name: str) -> str | None:
    """Cut the text after its root element. End a truncated document after its last complete entry.

    An incomplete entry is dropped, because the complete one would come later with another id.
    """
    end = text.rfind(f"</{name}")
    if end >= 0 and text[end + len(name) + 2 :].lstrip()[:1] in ("", ">"):
        return f"{text[:end]}</{name}>"
    ends = [match.end() for match in _ENTRY_END.finditer(text)]
    if not ends:
        return None
    complete = text[: ends[-1]]
    channel = _CHANNEL_START.search(complete)
    is_open = channel is not None and _CHANNEL_END.search(complete) is None
    return f"{complete}</{channel[1]}></{name}>" if channel is not None and is_open else f"{complete}</{name}>"


def _declare_prefixes(text: str, position: int) -> str:
    """Add declarations of undeclared prefixes to the root element."""
    used = {match[1] for match in _USED_PREFIX.finditer(text)}
    used.update(prefix for prefix in _NAMESPACES if f" {prefix}:" in text)
    missing = sorted(used - {match[1] for match in _DECLARED_PREFIX.finditer(text)} - {"xml", "xmlns"})
    if not missing or len(missing) > _MAX_PREFIXES:
        return text
    declarations = "".join(
        f' xmlns:{prefix}="{_NAMESPACES.get(prefix, f"urn:runnel:undeclared:{prefix}")}"' for prefix in missing
    )
    return text[:position] + declarations + text[position:]
