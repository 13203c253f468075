"""RDF documents to wire documents: one document is one entry, with all that it says as its graph.

In: the text of a document in Turtle, N-Triples, N-Quads, TriG or JSON-LD, or the tree of one in RDF/XML. Out: a
WireDocument with one entry. What named graphs say is taken together. Blank nodes are called by their order in the
document, so that the same document read again is the same item.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from urllib.parse import quote, urlsplit

from lxml import etree

from runnel.errors import BrokenDocumentError
from runnel.model.graph import MOST_TRIPLES, RdfGraph, Triple, unescape_text
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
"""How files with RDF are called; those with RDF/XML are known by what is in them, as XML of other kinds is."""

MEDIA_TYPES = {
    "text/turtle": RdfForm.TURTLE,
    "application/x-turtle": RdfForm.TURTLE,
    "application/n-triples": RdfForm.N_TRIPLES,
    "application/n-quads": RdfForm.N_QUADS,
    "application/trig": RdfForm.TRIG,
    "application/ld+json": RdfForm.JSON_LD,
}
_SAYS_NOTHING = frozenset({"", "text/plain", "application/octet-stream", "application/json", "binary/octet-stream"})
_HINTS = {
    RdfForm.JSON_LD: "JSON-LD is one JSON object or array, with its context inside",
    RdfForm.RDF_XML: "rdf:about and its like belong to the namespace of rdf:RDF, and IRIs must be whole",
}
# A prefix is declared before anything else, and no tag of XML begins with an address.
_LIKE_TURTLE = re.compile(
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
    """The notation of RDF that a media type names; where it says nothing, the one that the name's ending means.

    RDF/XML is not among them: XML tells by itself what it is.

    >>> form_of("text/turtle; charset=utf-8", "https://muse.example/tour"), form_of(None, "/drop/tour.ttl").value
    (<RdfForm.TURTLE: 'turtle'>, 'turtle')
    >>> form_of("text/html", "https://muse.example/tour.ttl") is None
    True
    """
    said = (media_type or "").partition(";")[0].strip().lower()
    if said not in _SAYS_NOTHING:
        return MEDIA_TYPES.get(said)
    try:
        path = urlsplit(name).path if is_web(name) else name
    except ValueError:
        return None
    return SUFFIXES.get(PurePath(path).suffix.lower())


def is_like_turtle(text: str) -> bool:
    """Whether a text without a name of its notation begins as Turtle, TriG, N-Triples and N-Quads do.

    >>> is_like_turtle("# Muse\\n@prefix m: <https://muse.example/> ."), is_like_turtle("<rss:feed>")
    (True, False)
    """
    return _LIKE_TURTLE.match(text) is not None


def decode_rdf(text: str, name: str, form: RdfForm, base: str | None = None) -> WireDocument:
    """The wire document of an RDF text; relative IRIs are relative to `base`, or else to the file's own address.

    >>> decode_rdf("<#me> <urn:knows> [] .", "me.ttl", RdfForm.TURTLE, "https://muse.example/me").entries[0].graph
    RdfGraph('<https://muse.example/me#me> <urn:knows> _:b1 .\\n')
    """
    if form is RdfForm.JSON_LD:
        refuse_remote_contexts(text, name)
    return _document(text.encode("utf-8", "replace"), name, form, base)


def decode_rdf_xml(root: etree._Element, name: str, base: str | None = None) -> WireDocument:
    """The wire document of an `rdf:RDF` element; a DTD is refused, whatever it says.

    The parser of RDF/XML would expand entities without limit, so it is given only what the tree says.
    """
    if root.getroottree().docinfo.internalDTD is not None:
        raise BrokenDocumentError(
            "the document has a DOCTYPE, which is refused in RDF",
            place=f"{name}:1",
            hint="remove the DOCTYPE, and write IRIs without entities",
        )
    return _document(etree.tostring(root, encoding="utf-8"), name, RdfForm.RDF_XML, base)


def _document(data: bytes, name: str, form: RdfForm, base: str | None) -> WireDocument:
    address = address_of(name, base)
    try:
        triples = read_triples(data, form, address, triples=MOST_TRIPLES, characters=2 * MAX_TEXT)
    except UnreadableRdfError as error:
        raise _broken(error, name, form) from error
    graph = graph_of(triples)
    if not graph:
        raise BrokenDocumentError("the document has no triples", place=f"{name}:1", hint="there is nothing to match")
    if len(graph) > MAX_TEXT:
        raise BrokenDocumentError(
            f"the graph is longer than {MAX_TEXT} characters", place=f"{name}:1", hint="split the document"
        )
    # What comes without a file's name, as from standard input, is known by what it is about.
    identifier = shown_url(address) if is_web(address) else PurePath(name).name if PurePath(name).suffix else None
    fields = tuple(_fields(triples, address))
    return WireDocument(DocumentKind.GRAPH, name, entries=(WireEntry(identifier, 1, fields, graph=graph),))


def _broken(error: UnreadableRdfError, name: str, form: RdfForm) -> BrokenDocumentError:
    line = f":{error.line}:{error.column or 1}" if error.line is not None else ":1"
    hint = _HINTS.get(form, "check the document with a validator of its notation")
    if error.line is None and form is not RdfForm.RDF_XML and form is not RdfForm.JSON_LD:
        hint = "split the document, or write it more simply"
    shown = "".join(one if one.isprintable() else "�" for one in str(error)[:300])
    return BrokenDocumentError(f"not readable as {form.value}: {shown}", place=f"{name}{line}", hint=hint)


def address_of(name: str, base: str | None) -> str:
    """What relative IRIs are relative to: where a document was fetched, or the address of its file.

    >>> address_of("/srv/drop/a b.ttl", None), address_of("a.ttl", "https://muse.example/a.ttl")
    ('file:///srv/drop/a%20b.ttl', 'https://muse.example/a.ttl')
    """
    if base is not None:
        return _LOGIN.sub(r"\1", base)
    return name if is_web(name) else f"file:///{quote(name.lstrip('/'), errors='replace')}"


def graph_of(triples: Iterable[Triple]) -> RdfGraph:
    """The graph of triples in document order: its blank nodes are called by when they come first.

    >>> graph_of([("_:x9", "<urn:p>", "_:a"), ("_:a", "<urn:p>", '"_:a"')])
    RdfGraph('_:b1 <urn:p> _:b2 .\\n_:b2 <urn:p> "_:a" .\\n')
    """
    names: dict[str, str] = {}

    def called(term: str) -> str:
        return names.setdefault(term, f"_:b{len(names) + 1}") if term.startswith("_:") else term

    return RdfGraph.of((called(subject), label, called(object)) for subject, label, object in triples)


def _fields(triples: Sequence[Triple], address: str) -> Iterator[WireField]:
    """What the document says of the thing that it is about, in the words that feeds use."""
    main = _main_subject(triples, address)
    said: dict[str, list[str]] = {}
    for subject, label, object in triples:
        if subject == main:
            said.setdefault(label, []).append(object)
    for name, form, labels in (
        ("title", TextForm.PLAIN, _TITLES),
        ("published", TextForm.DATE, _PUBLISHED),
        ("updated", TextForm.DATE, _UPDATED),
    ):
        for label in labels:
            for value in said.get(label, ()):
                if value.startswith('"'):
                    yield WireField(name, unescape_text(value[1 : value.rindex('"')]), form)
    if main is not None and is_web(main[1:-1]):
        yield WireField("link", main[1:-1], TextForm.LINK)
    elif is_web(address) and "…" not in (shown := shown_url(address)):
        yield WireField("link", shown, TextForm.LINK)


def _main_subject(triples: Sequence[Triple], address: str) -> str | None:
    """What a document is about: itself, where it speaks of itself, or the only thing that nothing else leads to."""
    subjects = {subject for subject, _, _ in triples}
    own = f"<{address.partition('#')[0]}>"
    if own in subjects:
        return own
    leading = subjects - {object for subject, _, object in triples if object != subject}
    return leading.pop() if len(leading) == 1 else None
