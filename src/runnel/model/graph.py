"""RDF graphs of items: the value of the attribute `graph`, in canonical N-Triples.

A graph is a text with one triple per line, sorted and without duplicates, so that equal graphs are equal values (if
blank nodes have the same names). Conditions on text do not read it; only `graph { … }` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from runnel.errors import InvalidItemError
from runnel.model.structured_value import StructuredValue

GRAPH = "graph"
"""The attribute that contains an item's graph."""

Triple = tuple[str, str, str]
"""Subject, predicate and object in N-Triples notation: `<iri>`, `_:blank`, `"text"@en`, `"2"^^<type>`."""

MAX_TRIPLES = 20_000

# The productions of N-Triples (RDF 1.1 N-Triples, section 7), possessive, so that hostile lines take linear time.
# Escapes are checked when a term is made canonical.
_LETTERS = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_MORE = rf"[{_LETTERS}_0-9\-\u00b7\u0300-\u036f\u203f-\u2040]"
_INSIDE = r"[^\x00-\x20<>\"{}|^`\\]"
_IRI = rf"<(?:{_INSIDE}++|\\[uU])*+>"
_BLANK = rf"_:[{_LETTERS}_0-9]{_MORE}*+(?:\.++{_MORE}++)*+"
_LITERAL = rf"\"(?:[^\"\\\n\r]++|\\.)*+\"(?:[ \t]*+(?:\^\^[ \t]*+{_IRI}|@[A-Za-z]++(?:-[A-Za-z0-9]++)*+))?+"
_LINE = re.compile(
    rf"[ \t]*+(?:({_IRI}|{_BLANK})[ \t]*+({_IRI})[ \t]*+({_IRI}|{_BLANK}|{_LITERAL})[ \t]*+\.[ \t]*+)?+(?:#.*+)?"
)
_ABSOLUTE = re.compile(rf"<[A-Za-z][A-Za-z0-9+.\-]*+:{_INSIDE}*+>")
_ESCAPE = re.compile(r"\\(?:[tbnrf\"'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|)")
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_TO_ESCAPE = re.compile(r"[\x00-\x1f\"\\\x7f\ufffe\uffff]")
_SHORT = {"\t": "\\t", "\b": "\\b", "\n": "\\n", "\r": "\\r", "\f": "\\f", '"': '\\"', "\\": "\\\\"}
_HALF = re.compile(r"[\ud800-\udfff]")
"""A lone surrogate, which is not a character."""
_TEXT_TYPE = "^^<http://www.w3.org/2001/XMLSchema#string>"
_TAGGED_TYPE = "^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>"


class RdfGraph(StructuredValue):
    """A graph in canonical N-Triples, created by `RdfGraph.of` or `RdfGraph.read`.

    >>> graph = RdfGraph.of([("<urn:b>", "<urn:p>", '"1"'), ("<urn:a>", "<urn:p>", "_:x")])
    >>> graph
    RdfGraph('<urn:a> <urn:p> _:x .\\n<urn:b> <urn:p> "1" .\\n')
    >>> list(graph.triples())[1]
    ('<urn:b>', '<urn:p>', '"1"')
    """

    __slots__ = ()

    kind: ClassVar[str] = "graph"

    @classmethod
    def read(cls, text: str, *, place: str = "item") -> RdfGraph:
        """Parse an N-Triples text."""
        return read_ntriples(text, place=place)

    @staticmethod
    def of(triples: Iterable[Triple]) -> RdfGraph:
        """Create a graph of triples whose terms are canonical."""
        return RdfGraph("".join(sorted({f"{subject} {label} {object} .\n" for subject, label, object in triples})))

    def triples(self) -> Iterator[Triple]:
        """Return the triples, in order."""
        for line in self.split("\n"):
            if line:
                subject, label, rest = line.split(" ", 2)
                yield subject, label, rest[:-2]


def read_ntriples(text: str, *, place: str = "item") -> RdfGraph:
    """Parse an N-Triples text. An error contains the number of the line.

    >>> read_ntriples('<urn:a> <urn:p> "caf\\\\u00e9" . # with a comment')
    RdfGraph('<urn:a> <urn:p> "café" .\\n')
    """
    triples: list[Triple] = []
    terms = _Terms()
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        match = _LINE.fullmatch(line)
        if match is None or (not line.isascii() and _HALF.search(line)):
            raise InvalidItemError(
                f"line {number} of the graph is not an N-Triples statement: {_shown(line)}",
                place=place,
                hint='write one triple per line: <urn:a> <urn:b> "text" .',
            )
        if match[1] is None:
            continue
        try:
            triples.append((terms[match[1]], terms[match[2]], terms[match[3]]))
        except ValueError as error:
            raise InvalidItemError(f"line {number} of the graph: {error}", place=place) from None
        if len(triples) > MAX_TRIPLES:
            raise InvalidItemError(
                f"the graph has more than {MAX_TRIPLES} triples", place=place, hint="split the item"
            )
    return RdfGraph.of(triples)


class _Terms(dict[str, str]):
    """A cache of canonical terms by their original notation, because most terms occur often."""

    def __missing__(self, term: str) -> str:
        canonical = self[term] = canonical_term(term)
        return canonical


def canonical_term(term: str) -> str:
    """Return a term in canonical N-Triples: few escapes, no type on plain texts, language tags in lower case.

    The term must follow the grammar of N-Triples. Raise ValueError for an IRI that is relative or contains invalid
    characters, for an escape that is not a character, and for a language-tagged text without its tag.

    >>> canonical_term('"caf\\u00e9"^^<http://www.w3.org/2001/XMLSchema#string>'), canonical_term('"Chat"@FR')
    ('"café"', '"Chat"@fr')
    """
    if term[0] == "<":
        return _canonical_iri(term)
    if term[0] == "_":
        return term
    end = term.rindex('"')
    text, rest = term[1:end], term[end + 1 :].lstrip(" \t")
    if "\\" in text or not text.isprintable():
        text = escape_text(unescape_text(text))
    if rest.startswith("@"):
        rest = rest.lower()
    elif rest:
        rest = "^^" + _canonical_iri(rest[2:].lstrip(" \t"))
    if rest == _TAGGED_TYPE:
        raise ValueError(f"a literal of type langString requires a language tag, such as @en: {_shown(term)}")
    return f'"{text}"' if rest == _TEXT_TYPE else f'"{text}"{rest}'


def _canonical_iri(iri: str) -> str:
    unescaped = unescape_text(iri)
    if not _ABSOLUTE.fullmatch(unescaped):
        raise ValueError(f"an IRI must be absolute, such as <https://muse.example/x>: {_shown(iri)}")
    return unescaped


def escape_text(text: str) -> str:
    """Escape the text of a literal as canonical N-Triples requires.

    >>> escape_text('say "hi"\\n\\x01')
    'say \\\\"hi\\\\"\\\\n\\\\u0001'
    """
    return _TO_ESCAPE.sub(lambda match: _SHORT.get(match[0]) or f"\\u{ord(match[0]):04X}", text)


def unescape_text(text: str) -> str:
    """Return the text of a literal. Raise ValueError if an escape is not a character.

    >>> unescape_text(escape_text('say "hi"\\\\n')) == 'say "hi"\\\\n'
    True
    """
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[0][1:]
    if code in _ESCAPED:
        return _ESCAPED[code]
    point = int(code[1:] or "110000", 16)
    if point >= 0x110000 or 0xD800 <= point < 0xE000:
        raise ValueError(f"{match[0]} is not a valid Unicode escape")
    return chr(point)


def _shown(text: str) -> str:
    return repr(text.strip()[:80])
