"""Safe XML parsing of documents from outside.

In: the text of a document. Out: its root element, or a BrokenDocumentError. No external resource is loaded, entity
declarations are rejected (so entity expansion attacks are impossible), and the depth and the number of elements are
limited while the tree is being built.
"""

from __future__ import annotations

import re
from html.entities import html5
from io import BytesIO
from typing import Any
from xml.sax.saxutils import escape

from lxml import etree

from runnel.errors import BrokenDocumentError

MAX_DEPTH = 100
MAX_ELEMENTS = 1_500_000

_PREDEFINED = frozenset({"amp", "lt", "gt", "quot", "apos"})
_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,31});")
_DOCTYPE_END = re.compile(r"""[^\[<>"']*+(?:(?:"[^"]*+"|'[^']*+')[^\[<>"']*+)*+([>\[]?)""")
_CDATA = "<![CDATA["


def parse_xml(text: str, name: str, *, max_elements: int = MAX_ELEMENTS) -> etree._Element:
    """Parse an XML document that declares no entities, and return its root.

    >>> parse_xml("<a>caf&eacute;</a>", "a.xml").text
    'café'
    """
    refuse_declarations(text, name)
    text = _without_declaration(text)
    data = BytesIO(replace_named_entities(text).encode("utf-8", "replace"))
    events = etree.iterparse(
        data,
        events=("start", "end"),
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        recover=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        _parse_within_limits(events, name, max_elements)
    except etree.XMLSyntaxError as error:
        raise _broken(error, name) from error
    root: etree._Element = events.root
    internal_dtd: Any = root.getroottree().docinfo.internalDTD
    if internal_dtd is not None and internal_dtd.entities():
        raise BrokenDocumentError("the document declares entities, which is not allowed", place=f"{name}:1")
    for reference in root.iter(etree.Entity):
        raise BrokenDocumentError(
            f"the entity {reference.text} is unknown",
            place=f"{name}:{reference.sourceline or 1}",
            hint="write the character instead of the entity",
        )
    return root


def _without_declaration(text: str) -> str:
    """Remove `<?xml …?>`. The charset is known, and spaces before it (common, but invalid) become harmless."""
    start = len(text) - len(text.lstrip())
    end = text.find("?>", start) if text.startswith("<?xml", start) and text[start + 5 : start + 6].isspace() else -1
    if end < 0:
        return text
    return "\n" * text.count("\n", 0, end) + text[end + 2 :]


def _parse_within_limits(events: etree.iterparse, name: str, max_elements: int) -> None:
    depth = elements = 0
    for event, element in events:
        if event == "end":
            depth -= 1
            continue
        depth += 1
        elements += 1
        if depth > MAX_DEPTH:
            message = f"elements are nested more than {MAX_DEPTH} levels deep"
        elif elements > max_elements:
            message = f"the document has more than {max_elements} elements"
        else:
            continue
        raise BrokenDocumentError(
            message, place=f"{name}:{element.sourceline or 1}", hint="split or flatten the document"
        )


def _broken(error: etree.XMLSyntaxError, name: str) -> BrokenDocumentError:
    line, column = error.position
    message = (error.msg or "not XML").split(", line ")[0]
    return BrokenDocumentError(
        f"not well-formed XML: {message}",
        place=f"{name}:{max(line, 1)}:{max(column, 1)}",
        hint="the document may be truncated; check the original",
    )


def refuse_declarations(text: str, name: str) -> None:
    """Raise BrokenDocumentError for a DOCTYPE with declarations. A reference to a DTD is allowed and never loaded.

    >>> refuse_declarations('<!DOCTYPE rss SYSTEM "rss.dtd"><rss/>', "a.xml")
    """
    position = _doctype(text)
    if position < 0:
        return
    end = _DOCTYPE_END.match(text, position)
    if end is None or end[1] != ">":
        raise BrokenDocumentError(
            "the DOCTYPE must be complete and must not contain declarations",
            place=f"{name}:{text.count(chr(10), 0, position) + 1}",
            hint="remove the part of the DOCTYPE between [ and ]",
        )


def _doctype(text: str) -> int:
    """Return the position after `<!` of the DOCTYPE in the prolog, or -1 if there is none."""
    position = 0
    while True:
        position = text.find("<", position)
        if position < 0:
            return -1
        if text.startswith("<!--", position):
            position = text.find("-->", position + 4)
        elif text.startswith("<?", position):
            position = text.find("?>", position + 2)
        elif text.startswith("<!", position):
            return position + 2
        else:
            return -1
        if position < 0:
            return -1
        position += 2


def replace_named_entities(text: str) -> str:
    """Replace HTML's named entities outside CDATA by characters, except the five of XML.

    >>> replace_named_entities("a&nbsp;b &amp; <![CDATA[&nbsp;]]>")
    'a\\xa0b &amp; <![CDATA[&nbsp;]]>'
    """
    if not any(match[1] not in _PREDEFINED for match in _NAMED.finditer(text)):
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        start = text.find(_CDATA, position)
        start = len(text) if start < 0 else start
        parts.append(_NAMED.sub(_character, text[position:start]))
        end = text.find("]]>", start)
        position = len(text) if end < 0 else end
        parts.append(text[start:position])
    return "".join(parts)


def _character(reference: re.Match[str]) -> str:
    character = html5.get(f"{reference[1]};")
    return reference[0] if character is None or reference[1] in _PREDEFINED else escape(character)
