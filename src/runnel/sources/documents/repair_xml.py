"""Mending of XML that is nearly well-formed, so that the strict decoders can read it after all.

In: the text of a feed that is not well-formed XML. Out: `repair_xml` gives the text with its commonest faults put
right, or None where it has no root. Mended text goes through the same screening as any other; nothing here decides
what is safe. Every step is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html.entities import html5

from runnel.sources.documents.extensions import PREFIXES

_BEGINS = re.compile(r"<(?:\?xml\s|rss[\s>]|rdf:RDF[\s>]|feed[\s>])", re.IGNORECASE)
_JUNK = 8192
_DECLARATION = re.compile(r"<\?xml\s[^<>]{0,200}\?>", re.IGNORECASE)
_ROOT = re.compile(r"[A-Za-z_][\w.:-]{0,99}")
_ENTRY_END = re.compile(r"</(?:[A-Za-z_][\w.-]{0,30}:)?(?:item|entry)\s{0,9}>", re.IGNORECASE)
_CHANNEL_END = re.compile(r"</((?:[A-Za-z_][\w.-]{0,30}:)?channel)\s{0,9}>")
_CHANNEL_START = re.compile(r"<((?:[A-Za-z_][\w.-]{0,30}:)?channel)[\s>]")
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_REFERENCE = re.compile(r"&(?:(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));)?")
_NO_TAG = re.compile(r"<(?![A-Za-z_:/!?])")
_USED = re.compile(r"</?([A-Za-z_][\w.-]{0,30}):[A-Za-z_]")
_DECLARED = re.compile(r"\sxmlns:([A-Za-z_][\w.-]{0,30})\s{0,9}=")
_MOST_PREFIXES = 50
_NAMESPACES = {prefix: namespace for namespace, prefix in reversed(PREFIXES.items())}


def beginning(text: str) -> int:
    """Where a feed begins in a text that has something else before it, as a server's warning; -1 if nowhere near.

    >>> beginning("Warning: no cache\\n<rss version='2.0'>")
    18
    """
    found = _BEGINS.search(text, 0, _JUNK)
    return -1 if found is None else found.start()


def repair_xml(text: str) -> str | None:
    """The text, more nearly XML: without junk around it, cut back to its last whole entry, its characters escaped.

    >>> repair_xml("<rss><channel><item><title>Q&A: 1 < 2</title></item><item><tit")
    '<rss><channel><item><title>Q&amp;A: 1 &lt; 2</title></item></channel></rss>'
    """
    text = text[max(0, beginning(text)) :]
    text = _outside_sections(text, _mend_characters)
    text = _without_declarations(text)
    start = _root_start(text)
    name = None if start < 0 else _ROOT.match(text, start + 1)
    if name is None:
        return None
    ended = _end_root(text, name[0])
    return None if ended is None else _declare_prefixes(ended, name.end())


def _outside_sections(text: str, change: Callable[[str], str]) -> str:
    """The text changed outside CDATA sections; inside them only characters that XML forbids are dropped."""
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


def _mend_characters(text: str) -> str:
    return _NO_TAG.sub("&lt;", _REFERENCE.sub(_mend_reference, text))


def _mend_reference(found: re.Match[str]) -> str:
    decimal, hexadecimal, named = found.groups()
    if named is not None:
        return found[0] if f"{named};" in html5 else "&amp;" + found[0][1:]
    if decimal is None and hexadecimal is None:
        return "&amp;"
    code = int(decimal) if decimal is not None else int(hexadecimal, 16)
    allowed = code in (9, 10, 13) or 0x20 <= code < 0xD800 or 0xE000 <= code < 0xFFFE or 0x10000 <= code < 0x110000
    return f"&#{code};" if allowed else ""


def _without_declarations(text: str) -> str:
    """Without any `<?xml …?>` before the root: the charset is settled, and a second one is an error."""
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
    """The text up to the end of its root; a document that was cut off ends after its last whole entry.

    What is left of a torn entry is not taken: it would come again, whole and under another id.
    """
    end = text.rfind(f"</{name}")
    if end >= 0 and text[end + len(name) + 2 :].lstrip()[:1] in ("", ">"):
        return f"{text[:end]}</{name}>"
    ends = [whole.end() for whole in _ENTRY_END.finditer(text)]
    if not ends:
        return None
    kept = text[: ends[-1]]
    channel = _CHANNEL_START.search(kept)
    is_open = channel is not None and _CHANNEL_END.search(kept) is None
    return f"{kept}</{channel[1]}></{name}>" if channel is not None and is_open else f"{kept}</{name}>"


def _declare_prefixes(text: str, position: int) -> str:
    """The text with a declaration at its root of every prefix that is used without one."""
    used = {found[1] for found in _USED.finditer(text)}
    used.update(prefix for prefix in _NAMESPACES if f" {prefix}:" in text)
    missing = sorted(used - {found[1] for found in _DECLARED.finditer(text)} - {"xml", "xmlns"})
    if not missing or len(missing) > _MOST_PREFIXES:
        return text
    declared = "".join(
        f' xmlns:{prefix}="{_NAMESPACES.get(prefix, f"urn:runnel:undeclared:{prefix}")}"' for prefix in missing
    )
    return text[:position] + declared + text[position:]
