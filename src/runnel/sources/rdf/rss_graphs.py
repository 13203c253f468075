"""Adds graphs to the entries of RSS 1.0 and 0.90 feeds, which are RDF documents.

In: the tree of a feed, and its wire document. Out: the wire document with graphs. The graph of an entry contains the
triples of the item and of all nodes that can be reached from it in the document, except other items and the channel.
If the RDF of a feed cannot be read, its entries have no graphs, and its note says why.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lxml import etree

from runnel.errors import InputError, InvalidItemError
from runnel.model.graph import MAX_TRIPLES, Triple
from runnel.model.item import MAX_TEXT
from runnel.sandbox.rdf_reader import RdfForm, UnreadableRdfError, read_triples
from runnel.sources.documents.bounds import MAX_PROBLEMS, ProblemList
from runnel.sources.documents.extensions import RDF, RSS
from runnel.sources.documents.wire import WireDocument, WireEntry
from runnel.sources.rdf.decode_rdf import address_of, graph_of

MAX_DOCUMENT_TRIPLES = 200_000
"""Limit for a feed, and for the total of its graphs. A node that several entries refer to counts several times."""

_MAX_CHARACTERS = 32 << 20
_TYPE = f"<{RDF}type>"
_FENCE_TYPES = frozenset(f"<{namespace}{local}>" for namespace in RSS if namespace for local in ("item", "channel"))
_BOUNDS = f"{MAX_TRIPLES} triples or {MAX_TEXT} characters"


def add_graphs(
    document: WireDocument, items: Sequence[etree._Element], root: etree._Element, base: str | None
) -> WireDocument:
    """Return the document with the graphs of its entries. `items` are their elements. Modifies the tree.

    >>> from runnel.sources.documents.decode_rss import decode_rss, rss_items
    >>> root = etree.fromstring(f'<r:RDF xmlns:r="{RDF}" xmlns="http://purl.org/rss/1.0/"><item><link>a</link></item></r:RDF>')
    >>> len(list(add_graphs(decode_rss(root, "a.rdf"), rss_items(root), root, None).entries[0].graph.triples()))
    2
    """
    namespace = f"urn:uuid:{uuid.uuid4()}"
    for number, item in enumerate(items):
        # The IRI of an item depends on bases, ids and order. A numbered property shows which node the parser creates
        # for which element.
        etree.SubElement(item, f"{{{namespace}#}}number").text = str(number)
    try:
        triples = read_triples(
            etree.tostring(root, encoding="utf-8"),
            RdfForm.RDF_XML,
            address_of(document.name, base),
            triples=MAX_DOCUMENT_TRIPLES,
            characters=_MAX_CHARACTERS,
        )
        return _with_graphs(document, triples, f"<{namespace}#number>")
    except UnreadableRdfError as error:
        return replace(document, note=f"the entries have no graphs: {error}"[:300])


def _with_graphs(document: WireDocument, triples: Sequence[Triple], number_property: str) -> WireDocument:
    by_subject: dict[str, list[tuple[int, Triple]]] = {}
    nodes: dict[int, str] = {}
    fences: set[str] = set()
    for position, (subject, label, object) in enumerate(triples):
        if label == number_property:
            nodes[int(object[1:-1])] = subject
            continue
        if label == _TYPE and object in _FENCE_TYPES:
            fences.add(subject)
        by_subject.setdefault(subject, []).append((position, (subject, label, object)))
    entries: list[WireEntry] = []
    problems = ProblemList(document.name, document.problems, limit=MAX_PROBLEMS // 2)
    remaining = MAX_DOCUMENT_TRIPLES
    for number, entry in enumerate(document.entries):
        node = nodes.get(number)
        reachable = [] if node is None else _reachable_triples(node, by_subject, fences)
        graph = None if reachable is None else graph_of(reachable)
        if graph is None or len(graph) > MAX_TEXT:
            problems.add(_too_large(document, entry))
            graph = None
        remaining -= len(reachable or ())
        if remaining < 0:
            raise UnreadableRdfError(
                f"the graphs of the entries have more than {MAX_DOCUMENT_TRIPLES} triples in total"
            )
        entries.append(replace(entry, graph=graph or None))
    return replace(document, entries=tuple(entries), problems=tuple(problems.summary()))


def _reachable_triples(
    start: str, by_subject: Mapping[str, Sequence[tuple[int, Triple]]], fences: set[str]
) -> list[Triple] | None:
    """Return the triples of all nodes that are reachable from a node, in document order, or None if too many."""
    reachable: list[tuple[int, Triple]] = []
    seen = {start}
    waiting = deque([start])
    while waiting:
        for position, triple in by_subject.get(waiting.popleft(), ()):
            reachable.append((position, triple))
            object = triple[2]
            if object not in seen and object not in fences and object in by_subject:
                seen.add(object)
                waiting.append(object)
        if len(reachable) > MAX_TRIPLES:
            return None
    return [triple for _, triple in sorted(reachable)]


def _too_large(document: WireDocument, entry: WireEntry) -> InputError:
    return InvalidItemError(
        f"the graph of the entry has more than {_BOUNDS}; the entry was accepted without it",
        place=f"{document.name}:{entry.line}",
        hint="`graph { … }` is false for this item",
    )
