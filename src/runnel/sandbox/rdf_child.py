"""The program of the RDF reader's sandbox: documents come in, their triples go back as N-Triples lines in order.

A sandbox is needed because a document can end the process that reads it: triples nested inside triples exhaust the
stack of the parser, and the contexts of JSON-LD its time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyoxigraph

FORMATS = {
    "turtle": pyoxigraph.RdfFormat.TURTLE,
    "n-triples": pyoxigraph.RdfFormat.N_TRIPLES,
    "n-quads": pyoxigraph.RdfFormat.N_QUADS,
    "trig": pyoxigraph.RdfFormat.TRIG,
    "rdf/xml": pyoxigraph.RdfFormat.RDF_XML,
    "json-ld": pyoxigraph.RdfFormat.JSON_LD,
}


def open_program() -> Callable[[bytes], bytes]:
    """The function that answers requests. A request and a reply are each a line of JSON and bytes after it."""
    # Load now what is loaded late: after the limits are set no file can be opened.
    answer(b'{"form": "turtle", "base": "urn:a", "triples": 9, "characters": 99}\n<urn:a> <urn:b> 1, .')
    return answer


def answer(request: bytes) -> bytes:
    """The reply to a request."""
    told, lines = _read(request)
    return json.dumps(told).encode() + b"\n" + "".join(lines).encode()


def _read(question: bytes) -> tuple[dict[str, Any], list[str]]:
    """What there is to say of a document, and its triples in order: none where something is wrong."""
    head, _, data = question.partition(b"\n")
    asked = json.loads(head)
    lines: list[str] = []
    left = asked["characters"]
    try:
        for quad in pyoxigraph.parse(data, FORMATS[asked["form"]], base_iri=asked["base"]):
            if isinstance(quad.object, pyoxigraph.Triple):
                return {"problem": "a triple stands in the place of a node"}, []
            line = f"{quad.subject} {quad.predicate} {quad.object}\n"
            left -= len(line)
            if len(lines) == asked["triples"]:
                return {"more": "triples"}, []
            if left < 0:
                return {"more": "characters"}, []
            lines.append(line)
    except SyntaxError as error:
        return {"problem": error.msg, "line": error.lineno, "column": error.offset}, []
    except ValueError as error:
        return {"problem": str(error)}, []
    return {}, lines
