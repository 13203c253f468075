"""RDF graphs as items carry them: the value of the attribute `graph`, in canonical N-Triples.

A graph is a text whose lines are triples, sorted and each once, so that equal graphs are equal values (as far as
blank nodes are called the same). It is no text to the conditions on texts: only `graph { … }` looks into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from runnel.errors import InvalidItem

GRAPH = "graph"
"""The attribute that holds an item's graph."""

Triple = tuple[str, str, str]
"""Subject, predicate and object as N-Triples writes them: `<iri>`, `_:blank`, `"text"@en`, `"2"^^<type>`."""

MOST_TRIPLES = 20_000

_ESCAPED = r"\\(?:[tbnrf\"'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_IRI = rf"<(?:[^\x00-\x20<>\"{{}}|^`\\]|{_ESCAPED})*+>"
_BLANK = r"_:[^\s<>\"'\\:.]++(?:\.++[^\s<>\"'\\:.]++)*+"
_LITERAL = rf"\"(?:[^\"\\\n\r]|{_ESCAPED})*+\"(?:\^\^{_IRI}|@[A-Za-z]++(?:-[A-Za-z0-9]++)*+)?"
_LINE = re.compile(
    rf"[ \t]*+(?:({_IRI}|{_BLANK})[ \t]*+({_IRI})[ \t]*+({_IRI}|{_BLANK}|{_LITERAL})[ \t]*+\.[ \t]*+)?+(?:#.*+)?"
)
_ESCAPE = re.compile(_ESCAPED)
_PLAIN = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_TEXT_TYPE = "^^<http://www.w3.org/2001/XMLSchema#string>"


class RdfGraph(str):
    """A graph in canonical N-Triples; made by `RdfGraph.of` or `read_ntriples`.

    >>> graph = RdfGraph.of([("<urn:b>", "<urn:p>", '"1"'), ("<urn:a>", "<urn:p>", "_:x")])
    >>> graph
    RdfGraph('<urn:a> <urn:p> _:x .\\n<urn:b> <urn:p> "1" .\\n')
    >>> list(graph.triples())[1]
    ('<urn:b>', '<urn:p>', '"1"')
    """

    __slots__ = ()

    @staticmethod
    def of(triples: Iterable[Triple]) -> RdfGraph:
        """The graph of triples whose terms are canonical already."""
        return RdfGraph("".join(sorted({f"{subject} {label} {object} .\n" for subject, label, object in triples})))

    def triples(self) -> Iterator[Triple]:
        """The triples, in order."""
        for line in self.split("\n"):
            if line:
                subject, label, rest = line.split(" ", 2)
                yield subject, label, rest[:-2]

    def __repr__(self) -> str:
        return f"RdfGraph({str(self)!r})"


def read_ntriples(text: str, *, place: str = "item") -> RdfGraph:
    """The graph of an N-Triples text; refused with its line where it is none.

    >>> read_ntriples('<urn:a> <urn:p> "caf\\\\u00e9" . # with a comment')
    RdfGraph('<urn:a> <urn:p> "café" .\\n')
    """
    triples: list[Triple] = []
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise InvalidItem(
                f"line {number} of the graph is no N-Triples: {line.strip()[:80]!r}",
                place=place,
                hint='write every triple on a line of its own: <urn:a> <urn:b> "text" .',
            )
        if found[1] is not None:
            triples.append((canonical_term(found[1]), canonical_term(found[2]), canonical_term(found[3])))
            if len(triples) > MOST_TRIPLES:
                raise InvalidItem(
                    f"the graph has more than {MOST_TRIPLES} triples", place=place, hint="split the item"
                )
    return RdfGraph.of(triples)


def canonical_term(term: str) -> str:
    """A term as canonical N-Triples writes it: few escapes, no type on plain texts, languages in small letters.

    >>> canonical_term('"a\\\\tb"^^<http://www.w3.org/2001/XMLSchema#string>'), canonical_term('"Chat"@FR')
    ('"a\\tb"', '"Chat"@fr')
    """
    if term[0] != '"':
        return _ESCAPE.sub(_unescaped, term) if "\\" in term else term
    end = term.rindex('"')
    text, rest = term[1:end], term[end + 1 :]
    if "\\" in text:
        text = escape_text(_ESCAPE.sub(_unescaped, text))
    if rest == _TEXT_TYPE:
        rest = ""
    elif rest.startswith("@"):
        rest = rest.lower()
    elif "\\" in rest:
        rest = _ESCAPE.sub(_unescaped, rest)
    return f'"{text}"{rest}'


def escape_text(text: str) -> str:
    """The inside of a literal: what canonical N-Triples escapes is escaped, all else is as it is."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def unescape_text(text: str) -> str:
    """The text of a literal's inside.

    >>> unescape_text(escape_text('say "hi"\\\\n')) == 'say "hi"\\\\n'
    True
    """
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(found: re.Match[str]) -> str:
    code = found[0][1:]
    if code[0] not in "uU":
        return _PLAIN[code]
    point = int(code[1:], 16)
    # Neither half a character nor none at all.
    return chr(point) if point < 0x110000 and not 0xD800 <= point < 0xE000 else "\ufffd"
