"""RSS 1.0 and 0.90 are RDF: each entry of such a feed also has what the document says of it as its graph.

In: the tree of a feed, and its wire document. Out: the wire document with graphs. An entry's graph is the triples of
the item and of all that it leads to inside the document, but not of other items or of the channel. A feed whose RDF
cannot be read keeps its entries, without graphs, and its note says why.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lxml import etree

from runnel.errors import InputError, InvalidItemError
from runnel.model.graph import MOST_TRIPLES, Triple
from runnel.model.item import MAX_TEXT
from runnel.sandbox.rdf_reader import RdfForm, UnreadableRdfError, read_triples
from runnel.sources.documents.bounds import MAX_PROBLEMS, ProblemList
from runnel.sources.documents.extensions import RDF, RSS
from runnel.sources.documents.wire import WireDocument, WireEntry
from runnel.sources.rdf.decode_rdf import address_of, graph_of

MOST_DOCUMENT_TRIPLES = 200_000
"""Of a whole feed, and of the graphs of its entries together: what many entries lead to is in the graph of each."""

_MOST_CHARACTERS = 32 << 20
_TYPE = f"<{RDF}type>"
_FENCES = frozenset(f"<{namespace}{local}>" for namespace in RSS if namespace for local in ("item", "channel"))
_BOUNDS = f"{MOST_TRIPLES} triples or {MAX_TEXT} characters"


def add_graphs(
    document: WireDocument, items: Sequence[etree._Element], root: etree._Element, base: str | None
) -> WireDocument:
    """The document with the graphs of its entries; `items` are their elements. The tree is changed.

    >>> from runnel.sources.documents.decode_rss import decode_rss, rss_items
    >>> root = etree.fromstring(f'<r:RDF xmlns:r="{RDF}" xmlns="http://purl.org/rss/1.0/"><item><link>a</link></item></r:RDF>')
    >>> len(list(add_graphs(decode_rss(root, "a.rdf"), rss_items(root), root, None).entries[0].graph.triples()))
    2
    """
    mark = f"urn:uuid:{uuid.uuid4()}"
    for number, item in enumerate(items):
        # Which node stands for which element is a matter of bases, ids and order: the parser itself has to tell.
        etree.SubElement(item, f"{{{mark}#}}number").text = str(number)
    try:
        triples = read_triples(
            etree.tostring(root, encoding="utf-8"),
            RdfForm.RDF_XML,
            address_of(document.name, base),
            triples=MOST_DOCUMENT_TRIPLES,
            characters=_MOST_CHARACTERS,
        )
        return _with_graphs(document, triples, f"<{mark}#number>")
    except UnreadableRdfError as error:
        return replace(document, note=f"the entries have no graphs: {error}"[:300])


def _with_graphs(document: WireDocument, triples: Sequence[Triple], mark: str) -> WireDocument:
    told: dict[str, list[tuple[int, Triple]]] = {}
    nodes: dict[int, str] = {}
    fences: set[str] = set()
    for place, (subject, label, object) in enumerate(triples):
        if label == mark:
            nodes[int(object[1:-1])] = subject
            continue
        if label == _TYPE and object in _FENCES:
            fences.add(subject)
        told.setdefault(subject, []).append((place, (subject, label, object)))
    entries: list[WireEntry] = []
    problems = ProblemList(document.name, document.problems, limit=MAX_PROBLEMS // 2)
    left = MOST_DOCUMENT_TRIPLES
    for number, entry in enumerate(document.entries):
        node = nodes.get(number)
        found = [] if node is None else _reached(node, told, fences)
        graph = None if found is None else graph_of(found)
        if graph is None or len(graph) > MAX_TEXT:
            problems.add(_too_large(document, entry))
            graph = None
        left -= len(found or ())
        if left < 0:
            raise UnreadableRdfError(
                f"the graphs of the entries have more than {MOST_DOCUMENT_TRIPLES} triples together"
            )
        entries.append(replace(entry, graph=graph or None))
    return replace(document, entries=tuple(entries), problems=tuple(problems.summary()))


def _reached(start: str, told: Mapping[str, Sequence[tuple[int, Triple]]], fences: set[str]) -> list[Triple] | None:
    """The triples of a node and of the nodes it leads to, in document order; None where they are too many."""
    found: list[tuple[int, Triple]] = []
    seen = {start}
    waiting = deque([start])
    while waiting:
        for place, triple in told.get(waiting.popleft(), ()):
            found.append((place, triple))
            object = triple[2]
            if object not in seen and object not in fences and object in told:
                seen.add(object)
                waiting.append(object)
        if len(found) > MOST_TRIPLES:
            return None
    return [triple for _, triple in sorted(found)]


def _too_large(document: WireDocument, entry: WireEntry) -> InputError:
    return InvalidItemError(
        f"what the document says of the entry is more than {_BOUNDS}; it was taken without a graph",
        place=f"{document.name}:{entry.line}",
        hint="conditions on its graph do not hold",
    )
