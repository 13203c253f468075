"""The RDF reader's process: documents come in over a socket, their triples go back, as N-Triples lines in order.

Started by path, as a process of its own that knows nothing of Runnel, because a document can end the process that
reads it: triples nested inside triples exhaust the stack of the parser, and JSON-LD's contexts its time. Memory and
files are bounded by the system; the process is given bytes, never an address, and can open no file and no connection.
"""

from __future__ import annotations

import json
import resource
import sys
from multiprocessing.connection import Connection
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


def main(descriptor: int, megabytes: int) -> None:
    """Answer until the other side hangs up. A question and an answer are each a line of JSON and bytes after it."""
    # Whatever is loaded late is loaded now: after the limits no file can be opened.
    _read(b'{"form": "turtle", "base": "urn:a", "triples": 9, "characters": 99}\n<urn:a> <urn:b> 1, .')
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    for what in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
        resource.setrlimit(what, (0, 0))
    with Connection(descriptor) as connection:
        while True:
            try:
                question = connection.recv_bytes()
            except EOFError:
                return
            told, lines = _read(question)
            connection.send_bytes(json.dumps(told).encode() + b"\n" + "".join(lines).encode())


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


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
