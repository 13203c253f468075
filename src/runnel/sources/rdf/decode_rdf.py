"""Decodes RDF documents to wire documents. A document becomes one entry, with all its triples as the graph.

In: the text of a document in Turtle, N-Triples, N-Quads, TriG or JSON-LD, or the tree of an RDF/XML document. Out: a
WireDocument with one entry. Named graphs are merged. Blank nodes are numbered in document order, so that reading the
same document again gives the same item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from urllib.parse import quote, urlsplit

from lxml import etree

from runnel.errors import BrokenDocumentError
from runnel.model.graph import MAX_TRIPLES, RdfGraph, Triple, unescape_text
from runnel.model.item import MAX_TEXT
from runnel.net.urls import shown_url
from runnel.sandbox.rdf_reader import RdfForm, UnreadableRdfError, read_triples
from runnel.sources.documents.wire import DocumentKind, TextForm, WireDocument, WireEntry, WireField
from runnel.sources.feed_address import is_web
from runnel.sources.rdf.json_ld import refuse_remote_contexts

SUFFIXES = {
    ".ttl": RdfForm.TURTLE,
    ".nt": RdfForm.N_TRIPLES,
    ".nq": RdfForm.N_QUADS,
    ".trig": RdfForm.TRIG,
    ".jsonld": RdfForm.JSON_LD,
}
"""The file suffixes of RDF notations. RDF/XML is recognized by its content, as other kinds of XML are."""

MEDIA_TYPES = {
    "text/turtle": RdfForm.TURTLE,
    "application/x-turtle": RdfForm.TURTLE,
    "application/n-triples": RdfForm.N_TRIPLES,
    "application/n-quads": RdfForm.N_QUADS,
    "application/trig": RdfForm.TRIG,
    "application/ld+json": RdfForm.JSON_LD,
}
_GENERIC_MEDIA_TYPES = frozenset(
    {"", "text/plain", "application/octet-stream", "application/json", "binary/octet-stream"}
)
_HINTS = {
    RdfForm.JSON_LD: "JSON-LD must be one JSON object or array that contains its context",
    RdfForm.RDF_XML: "rdf:about and similar attributes must be in the namespace of rdf:RDF, and IRIs must be valid",
}
# Turtle starts with a prefix or base declaration or with an IRI. An XML tag never starts with a URL.
_TURTLE_START = re.compile(
    r"\s*+(?:#[^\n]*+\s*+)*+(?:@prefix\s|@base\s|prefix\s++[^\s:<>]*+:\s*+<|base\s*+<|<https?://)", re.IGNORECASE
)

_LOGIN = re.compile(r"^([^/?#]*//)[^/?#]*@")
_TERMS, _ELEMENTS, _LABEL = "http://purl.org/dc/terms/", "http://purl.org/dc/elements/1.1/", "rdf-schema#label"
_TITLES = (
    f"<{_TERMS}title>",
    f"<{_ELEMENTS}title>",
    "<http://schema.org/name>",
    "<https://schema.org/name>",
    f"<http://www.w3.org/2000/01/{_LABEL}>",
    "<http://xmlns.com/foaf/0.1/name>",
)
_PUBLISHED = (f"<{_TERMS}issued>", f"<{_TERMS}created>", f"<{_TERMS}date>", f"<{_ELEMENTS}date>")
_UPDATED = (f"<{_TERMS}modified>",)


def form_of(media_type: str | None, name: str) -> RdfForm | None:
    """Return the RDF notation of a media type, or, for a generic media type, of the suffix of the name.

    Return None for RDF/XML, which is recognized by its content.

    >>> form_of("text/turtle; charset=utf-8", "https://muse.example/tour"), form_of(None, "/drop/tour.ttl").value
    (<RdfForm.TURTLE: 'turtle'>, 'turtle')
    >>> form_of("text/html", "https://muse.example/tour.ttl") is None
    True
    """
    essence = (media_type or "").partition(";")[0].strip().lower()
    if essence not in _GENERIC_MEDIA_TYPES:
        return MEDIA_TYPES.get(essence)
    try:
        path = urlsplit(name).path if is_web(name) else name
    except ValueError:
        return None
    return SUFFIXES.get(PurePath(path).suffix.lower())


def is_like_turtle(text: str) -> bool:
    """Return whether a text starts like Turtle, TriG, N-Triples or N-Quads.

    >>> is_like_turtle("# Muse\\n@prefix m: <https://muse.example/> ."), is_like_turtle("<rss:feed>")
    (True, False)
    """
    return _TURTLE_START.match(text) is not None


def decode_rdf(text: str, name: str, form: RdfForm, base: str | None = None) -> WireDocument:
    """Decode an RDF text. Relative IRIs are resolved against `base`, or else against the address of the file.

    >>> decode_rdf("<#me> <urn:knows> [] .", "me.ttl", RdfForm.TURTLE, "https://muse.example/me").entries[0].graph
    RdfGraph('<https://muse.example/me#me> <urn:knows> _:b1 .\\n')
    """
    if form is RdfForm.JSON_LD:
        refuse_remote_contexts(text, name)
    return _document(text.encode("utf-8", "replace"), name, form, base)


def decode_rdf_xml(root: etree._Element, name: str, base: str | None = None) -> WireDocument:
    """Decode an `rdf:RDF` element. Raise BrokenDocumentError if the document has a DOCTYPE.

    The RDF/XML parser would expand entities without limit, so it gets the serialized tree instead of the text.
    """
    if root.getroottree().docinfo.internalDTD is not None:
        raise BrokenDocumentError(
            "the document has a DOCTYPE, which is not allowed in RDF",
            place=f"{name}:1",
            hint="remove the DOCTYPE, and write IRIs without entities",
        )
    return _document(etree.tostring(root, encoding="utf-8"), name, RdfForm.RDF_XML, base)


def _document(data: bytes, name: str, form: RdfForm, base: str | None) -> WireDocument:
    address = address_of(name, base)
    try:
        triples = read_triples(data, form, address, triples=MAX_TRIPLES, characters=2 * MAX_TEXT)
    except UnreadableRdfError as error:
        raise _broken(error, name, form) from error
    graph = graph_of(triples)
    if not graph:
        raise BrokenDocumentError(
            "the document has no triples", place=f"{name}:1", hint="a document must have at least one triple"
        )
    if len(graph) > MAX_TEXT:
        raise BrokenDocumentError(
            f"the graph is longer than {MAX_TEXT} characters", place=f"{name}:1", hint="split the document"
        )
    # Without a URL or a file name, for example from standard input, `adapt` derives the id from the content.
    identifier = shown_url(address) if is_web(address) else PurePath(name).name if PurePath(name).suffix else None
    fields = tuple(_fields(triples, address))
    return WireDocument(DocumentKind.GRAPH, name, entries=(WireEntry(identifier, 1, fields, graph=graph),))


def _broken(error: UnreadableRdfError, name: str, form: RdfForm) -> BrokenDocumentError:
    line = f":{error.line}:{error.column or 1}" if error.line is not None else ":1"
    hint = _HINTS.get(form, f"check the document with a validator for {form.value}")
    if error.line is None and form is not RdfForm.RDF_XML and form is not RdfForm.JSON_LD:
        hint = "split or simplify the document"
    shown = "".join(character if character.isprintable() else "�" for character in str(error)[:300])
    return BrokenDocumentError(f"cannot read the document as {form.value}: {shown}", place=f"{name}{line}", hint=hint)


def address_of(name: str, base: str | None) -> str:
    """Return the base of relative IRIs: the URL of the document without credentials, or the address of its file.

    >>> address_of("/srv/drop/a b.ttl", None), address_of("a.ttl", "https://muse.example/a.ttl")
    ('file:///srv/drop/a%20b.ttl', 'https://muse.example/a.ttl')
    """
    if base is not None:
        return _LOGIN.sub(r"\1", base)
    return name if is_web(name) else f"file:///{quote(name.lstrip('/'), errors='replace')}"


def graph_of(triples: Iterable[Triple]) -> RdfGraph:
    """Build a graph from triples in document order. Blank nodes are numbered by first occurrence.

    >>> graph_of([("_:x9", "<urn:p>", "_:a"), ("_:a", "<urn:p>", '"_:a"')])
    RdfGraph('_:b1 <urn:p> _:b2 .\\n_:b2 <urn:p> "_:a" .\\n')
    """
    names: dict[str, str] = {}

    def rename(term: str) -> str:
        return names.setdefault(term, f"_:b{len(names) + 1}") if term.startswith("_:") else term

    return RdfGraph.of((rename(subject), label, rename(object)) for subject, label, object in triples)


def _fields(triples: Sequence[Triple], address: str) -> Iterator[WireField]:
    """Yield the title, dates and link of the main subject of a document, as fields of a feed entry."""
    main = _main_subject(triples, address)
    objects: dict[str, list[str]] = {}
    for subject, label, object in triples:
        if subject == main:
            objects.setdefault(label, []).append(object)
    for name, form, labels in (
        ("title", TextForm.PLAIN, _TITLES),
        ("published", TextForm.DATE, _PUBLISHED),
        ("updated", TextForm.DATE, _UPDATED),
    ):
        for label in labels:
            for value in objects.get(label, ()):
                if value.startswith('"'):
                    yield WireField(name, unescape_text(value[1 : value.rindex('"')]), form)
    if main is not None and is_web(main[1:-1]):
        yield WireField("link", main[1:-1], TextForm.LINK)
    elif is_web(address) and "…" not in (shown := shown_url(address)):
        yield WireField("link", shown, TextForm.LINK)


def _main_subject(triples: Sequence[Triple], address: str) -> str | None:
    """Return the subject that a document describes, or None.

    This is the document itself, if it is a subject, or else the only subject that no other subject refers to.
    """
    subjects = {subject for subject, _, _ in triples}
    own = f"<{address.partition('#')[0]}>"
    if own in subjects:
        return own
    candidates = subjects - {object for subject, _, object in triples if object != subject}
    return candidates.pop() if len(candidates) == 1 else None
