"""The nodes of a tree in document order, with interval encoding.

In: a tree. Out: `TreeNodes`: for every element and attribute its name, parent, end and text. The nodes below `n` are
`n + 1` to `ends[n] - 1`. The attributes of an element come directly after it. A JSON document has the root `json`;
members are its children by key, and every element of an array is a node with the name of the array.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import Any

from lxml import etree

from runnel.model.trees.canonical_json import parse_json, render_json, render_number, sorted_members
from runnel.model.trees.document_tree import DocumentTree, canonical_element

JSON_ROOT = "json"

_WHITE_SPACE = str.maketrans("\t\r\n", "   ")
_SPACES = re.compile(" {2,}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_MAX_NUMBER = 400
"""Maximum number of characters of a number, so that a long text is not converted."""
_CACHED_TREES = 16


def collapse_space(text: str) -> str:
    """Return a text without white space at its ends, and with single spaces instead of other white space.

    >>> collapse_space(" Rock \\n  am Ring")
    'Rock am Ring'
    """
    return _SPACES.sub(" ", text.translate(_WHITE_SPACE)).strip(" ")


def number_of(text: str) -> float | None:
    """Return the number that a text is, written as in JSON, or None.

    >>> number_of("-3.50"), number_of("007"), number_of("3 kg")
    (-3.5, None, None)
    """
    if len(text) > _MAX_NUMBER or not _NUMBER.fullmatch(text):
        return None
    number = float(text) + 0.0
    return number if math.isfinite(number) else None


@dataclass(slots=True)
class TreeNodes:
    """The nodes of a tree by number, from 0, the root. `parents[0]` is -1."""

    names: list[str] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    attributes: list[bool] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    _is_xml: bool = True
    _pieces: list[str] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=lambda: [0])
    _starts: list[int] = field(default_factory=list)
    _stops: list[int] = field(default_factory=list)
    _sources: list[Any] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)
    _child_counts: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def text(self, node: int) -> str:
        """Return all text of a node with collapsed white space. This is the `val` of the node."""
        if self.attributes[node]:
            return collapse_space(self._sources[node])
        return collapse_space("".join(self._pieces[self._starts[node] : self._stops[node]]))

    def length(self, node: int) -> int:
        """Return the number of characters of a node's text before its white space is collapsed."""
        if self.attributes[node]:
            return len(self._sources[node])
        return self._lengths[self._stops[node]] - self._lengths[self._starts[node]]

    def is_leaf(self, node: int) -> bool:
        """Return whether a node has no elements below it."""
        return all(self.attributes[below] for below in self.descendants(node))

    def number(self, node: int) -> float | None:
        """Return the text of an XML node, or a JSON number, as a number, or None. JSON texts are never converted."""
        if not self._is_xml:
            source = self._sources[node]
            return source if isinstance(source, float) else None
        return number_of(self.text(node))

    def content(self, node: int) -> str:
        """Return the canonical text of an element. This is the `cont` of the node."""
        source = self._sources[node]
        return canonical_element(source) if self._is_xml else render_json(source)

    def path(self, node: int) -> str:
        """Return the position of a node as a path of numbers from the root: `/1/3/2`. Attributes are counted."""
        steps: list[str] = []
        while node >= 0:
            steps.append(str(self._positions[node]))
            node = self.parents[node]
        return "/" + "/".join(reversed(steps))

    def children(self, node: int) -> Iterator[int]:
        """Yield the attributes and children of a node; the root is the child of -1."""
        child = node + 1
        end = len(self) if node < 0 else self.ends[node]
        while child < end:
            yield child
            child = self.ends[child]

    def descendants(self, node: int) -> range:
        """Return the nodes below a node; all nodes are below -1."""
        return range(node + 1, len(self) if node < 0 else self.ends[node])

    def _open(self, name: str, namespace: str, parent: int, source: Any, *, is_attribute: bool = False) -> int:
        self.names.append(name)
        self.namespaces.append(namespace)
        self.attributes.append(is_attribute)
        self.parents.append(parent)
        self._child_counts.append(0)
        if parent >= 0:
            self._child_counts[parent] += 1
        self._positions.append(self._child_counts[parent] if parent >= 0 else 1)
        self.ends.append(0)
        self._starts.append(len(self._pieces))
        self._stops.append(0)
        self._sources.append(source)
        return len(self.names) - 1

    def _close(self, node: int) -> None:
        self.ends[node] = len(self.names)
        self._stops[node] = len(self._pieces)

    def add_element(self, element: etree._Element, parent: int) -> None:
        """Add an element with everything below it."""
        namespace, name = _split_name(str(element.tag))
        node = self._open(name, namespace, parent, element)
        for full_name, value in element.attrib.items():
            namespace, name = _split_name(str(full_name))
            attribute = self._open(name, namespace, node, str(value), is_attribute=True)
            self._close(attribute)
        self._add_text(element.text)
        for child in element:
            self.add_element(child, node)
            self._add_text(child.tail)
        self._close(node)

    def add_json(self, name: str, value: Any, parent: int) -> None:
        """Add a JSON value with everything below it, under a name."""
        self._is_xml = False
        node = self._open(name, "", parent, value)
        match value:
            case dict():
                for key, member in sorted_members(value):
                    for element in member if isinstance(member, list) else (member,):
                        self.add_json(key, element, node)
            case list():
                for element in value:
                    self.add_json(name, element, node)
            case float():
                self._add_text(render_number(value))
            case bool():
                self._add_text("true" if value else "false")
            case str():
                self._add_text(value)
        self._close(node)

    def _add_text(self, text: str | None) -> None:
        if text:
            self._pieces.append(text)
            self._lengths.append(self._lengths[-1] + len(text))


@lru_cache(maxsize=_CACHED_TREES)
def nodes_of(tree: DocumentTree) -> TreeNodes:
    """Return the nodes of a tree. The last few trees are cached, because many patterns are evaluated on each.

    >>> nodes = nodes_of(DocumentTree.read('<news id="7"><title>Muse</title></news>'))
    >>> nodes.names, nodes.parents, nodes.ends, nodes.text(0)
    (['news', 'id', 'title'], [-1, 0, 0], [3, 2, 3], 'Muse')
    """
    nodes = TreeNodes()
    if tree.is_xml:
        # The text is canonical, so it has no DOCTYPE, and it was within the limits when it was read.
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        nodes.add_element(etree.fromstring(tree.encode("utf-8"), parser), -1)
    else:
        nodes.add_json(JSON_ROOT, parse_json(tree), -1)
    return nodes


def _split_name(name: str) -> tuple[str, str]:
    """Split a name of lxml into its namespace and its local name."""
    if not name.startswith("{"):
        return "", name
    namespace, _, local = name[1:].partition("}")
    return intern(namespace), local
