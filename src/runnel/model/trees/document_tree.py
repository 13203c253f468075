"""Trees of items: the value of the attribute `tree`, an XML or JSON document in canonical text.

XML is stored as exclusive canonical XML without comments and processing instructions, JSON as canonical JSON (RFC
8785). Therefore documents that differ only in notation, such as the order of attributes, are equal values. Conditions
on text do not read trees; only `tree …` does.
"""

from __future__ import annotations

from typing import Any, ClassVar

from lxml import etree

from runnel.errors import BrokenDocumentError, InvalidItemError
from runnel.model.item import MAX_TEXT, clean_text
from runnel.model.safe_xml import MAX_DEPTH, parse_xml
from runnel.model.structured_value import StructuredValue
from runnel.model.trees.canonical_json import parse_json, render_json

TREE = "tree"
"""The attribute that contains an item's trees."""

MAX_NAMESPACE = 256
"""Characters of a namespace."""

MAX_NODES = 65_535
"""Maximum number of elements and attributes of a tree."""

MAX_BYTES = MAX_TEXT
"""Maximum size of the canonical text in UTF-8."""

_BLANK = "\ufeff \t\r\n"


class DocumentTree(StructuredValue):
    """An XML or JSON document in canonical text, created by `DocumentTree.read`.

    >>> DocumentTree.read("<a  y='2' x='1'/>"), DocumentTree.read('{"b": 1.0, "a": []}')
    (DocumentTree('<a x="1" y="2"></a>'), DocumentTree('{"a":[],"b":1}'))
    """

    __slots__ = ()

    kind: ClassVar[str] = TREE

    @classmethod
    def read(cls, text: str, *, place: str = "item") -> DocumentTree:
        """Parse a document: XML if it begins with `<`, else a JSON object or array."""
        start = text.lstrip(_BLANK)[:1]
        if not start:
            return cls("")
        if start == "<":
            canonical = _canonical_xml(text.lstrip(_BLANK), place)
        elif start in "{[":
            canonical = _canonical_json(text.lstrip(_BLANK), place)
        else:
            raise InvalidItemError(
                f"a tree is an XML document, a JSON object or a JSON array, not {text.strip(_BLANK)[:40]!r}",
                place=place,
                hint='write XML such as <news/>, or JSON such as {"company": "ACME"}',
            )
        size = len(canonical.encode("utf-8"))
        if size > MAX_BYTES:
            raise InvalidItemError(
                f"the canonical text of the tree has {size:,} bytes, more than {MAX_BYTES:,}",
                place=place,
                hint="split the document into several items",
            )
        return cls(canonical)

    @property
    def is_xml(self) -> bool:
        """Whether the tree is an XML document."""
        return self.startswith("<")


def canonical_element(element: etree._Element) -> str:
    """Return the canonical text of an element without the text that follows it."""
    canonical: bytes = etree.tostring(element, method="c14n", exclusive=True, with_comments=False, with_tail=False)
    return canonical.decode("utf-8")


def _canonical_xml(text: str, place: str) -> str:
    try:
        root = parse_xml(text, place, max_elements=MAX_NODES)
    except BrokenDocumentError as error:
        raise InvalidItemError(f"the tree: {error.message}", place=error.place, hint=error.hint) from None
    nodes = 0
    for element in root.iter():
        nodes += 1 + len(element.attrib)
        # The canonical text repeats a namespace at each element that uses it, where no element above does.
        if any(str(name).find("}") > MAX_NAMESPACE + 1 for name in (element.tag, *element.attrib)):
            raise InvalidItemError(
                f"the tree has a namespace of more than {MAX_NAMESPACE:,} characters",
                place=place,
                hint="use shorter namespaces",
            )
        _normalize_texts(element)
    _check_nodes(nodes, place)
    try:
        return canonical_element(root)
    except etree.C14NError as error:
        raise InvalidItemError(
            f"the tree has no canonical form: {error}",
            place=place,
            hint="write namespaces as absolute URLs such as xmlns='https://muse.example/news'",
        ) from None


def _normalize_texts(element: etree._Element) -> None:
    """Convert the texts of an element to NFC."""
    if element.text is not None and not element.text.isascii():
        element.text = clean_text(element.text)
    if element.tail is not None and not element.tail.isascii():
        element.tail = clean_text(element.tail)
    for name, value in element.attrib.items():
        if not value.isascii():
            element.attrib[name] = clean_text(str(value))


def _canonical_json(text: str, place: str) -> str:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InvalidItemError(f"the tree is not valid JSON: {error}", place=place) from None
    _check_nodes(_count_nodes(value, place), place)
    return render_json(value)


def _count_nodes(value: Any, place: str) -> int:
    nodes = 1
    stack = [(value, 1)]
    while stack:
        parent, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise InvalidItemError(
                f"values of the tree are nested more than {MAX_DEPTH} levels deep",
                place=place,
                hint="flatten the document",
            )
        if isinstance(parent, dict | list):
            children = parent.values() if isinstance(parent, dict) else parent
            nodes += len(parent)
            stack.extend((child, depth + 1) for child in children if isinstance(child, dict | list))
    return nodes


def _check_nodes(nodes: int, place: str) -> None:
    if nodes > MAX_NODES:
        raise InvalidItemError(
            f"the tree has {nodes:,} elements and attributes, more than {MAX_NODES:,}",
            place=place,
            hint="split the document into several items",
        )
