"""The sandbox program for RDF: parses a document and replies with its triples, in order, as N-Triples lines.

A sandbox is needed because a document can crash or block the parser: nested triples exhaust its stack, and contexts
of JSON-LD can take very long.
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
    """Return the function that answers requests. Requests and replies consist of a line of JSON and then bytes."""
    # Parse an example, so that everything is loaded now. Once the limits are set, no file can be opened.
    answer(b'{"form": "turtle", "base": "urn:a", "triples": 9, "characters": 99}\n<urn:a> <urn:b> 1, .')
    return answer


def answer(request: bytes) -> bytes:
    """Return the reply to a request."""
    result, lines = _read(request)
    return json.dumps(result).encode() + b"\n" + "".join(lines).encode()


def _read(request: bytes) -> tuple[dict[str, Any], list[str]]:
    """Return an empty dictionary and the triples of a document, or a description of the problem and no triples."""
    head, _, data = request.partition(b"\n")
    options = json.loads(head)
    lines: list[str] = []
    remaining = options["characters"]
    try:
        for quad in pyoxigraph.parse(data, FORMATS[options["form"]], base_iri=options["base"]):
            if isinstance(quad.object, pyoxigraph.Triple):
                return {"problem": "a triple is used as a node, which is not supported"}, []
            line = f"{quad.subject} {quad.predicate} {quad.object}\n"
            remaining -= len(line)
            if len(lines) == options["triples"]:
                return {"more": "triples"}, []
            if remaining < 0:
                return {"more": "characters"}, []
            lines.append(line)
    except SyntaxError as error:
        return {"problem": error.msg, "line": error.lineno, "column": error.offset}, []
    except ValueError as error:
        return {"problem": str(error)}, []
    return {}, lines
