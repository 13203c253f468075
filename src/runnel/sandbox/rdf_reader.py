"""Reads RDF documents in a sandbox.

In: the text of a document, its notation, and the base of its relative IRIs. Out: its triples in document order, in
canonical N-Triples terms, with the parser's names of blank nodes, or an UnreadableRdfError.
"""

from __future__ import annotations

import atexit
import json
import re
from enum import StrEnum

from runnel.model.graph import Triple, canonical_term
from runnel.sandbox.pool import SandboxPool
from runnel.sandbox.process import BadReplyError, SandboxError, SandboxProgram

_MEGABYTES = 512
_CPU_SECONDS = 10.0
_WALL_SECONDS = 40.0
_MAX_HEAD = 64 << 10
_TRIPLE_PARTS = 3
_POSITION = re.compile(
    r"Parser error at line \d+ (?:column \d+|between columns? \d+ and (?:line \d+ )?(?:column )?\d+): "
)
_DIRECTION = re.compile(r"(@[A-Za-z0-9-]+?)--[a-z]+$")


class RdfForm(StrEnum):
    """A notation of RDF."""

    TURTLE = "turtle"
    N_TRIPLES = "n-triples"
    N_QUADS = "n-quads"
    TRIG = "trig"
    RDF_XML = "rdf/xml"
    JSON_LD = "json-ld"


class UnreadableRdfError(Exception):
    """A text cannot be read as RDF. `line` and `column` are given if they are known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class RdfReader:
    """Reads one document at a time, in a sandbox that is started on first use. Thread-safe.

    >>> reader = RdfReader()
    >>> reader.read(b"<urn:a> <urn:b> 1, 2 .", RdfForm.TURTLE, "urn:x", triples=1, characters=999)
    Traceback (most recent call last):
    runnel.sandbox.rdf_reader.UnreadableRdfError: the document has more than 1 triples
    >>> reader.close()
    """

    def __init__(self, *, seconds: float = _CPU_SECONDS, megabytes: int = _MEGABYTES) -> None:
        program = SandboxProgram("runnel.sandbox.rdf_child", ("pyoxigraph",), megabytes, seconds)
        self.sandboxes = SandboxPool(program, workers=1)

    def read(self, data: bytes, form: RdfForm, base: str, *, triples: int, characters: int) -> list[Triple]:
        """Return the triples of a text in UTF-8. Raise UnreadableRdfError if it is invalid or exceeds a limit."""
        options = {"form": form.value, "base": base, "triples": triples, "characters": characters}

        def read_reply(reply: memoryview) -> list[Triple]:
            return _read_reply(bytes(reply), triples, characters)

        try:
            return self.sandboxes.ask(
                json.dumps(options).encode() + b"\n" + data,
                read_reply,
                seconds=_WALL_SECONDS,
                max_reply=_MAX_HEAD + 4 * characters,
            )
        except SandboxError as error:
            raise UnreadableRdfError(f"the parser was stopped: {error.reason}") from None

    def close(self) -> None:
        """Stop the sandbox."""
        self.sandboxes.close()


def _read_reply(reply: bytes, triples: int, characters: int) -> list[Triple]:
    head, _, lines = reply.partition(b"\n")
    if len(head) > _MAX_HEAD:
        raise BadReplyError("the head of the reply is too long")
    match json.loads(head):
        case {"problem": str() as problem, **place}:
            line, column = place.get("line"), place.get("column")
            raise UnreadableRdfError(
                _POSITION.sub("", problem),
                line if isinstance(line, int) else None,
                column if isinstance(column, int) else None,
            )
        case {"more": "triples"}:
            raise UnreadableRdfError(f"the document has more than {triples} triples")
        case {"more": "characters"}:
            raise UnreadableRdfError(f"the triples of the document are longer than {characters} characters")
        case dict() as head_fields if not head_fields:
            pass
        case _:
            raise BadReplyError("the head of the reply is unknown")
    if lines.count(b"\n") > triples:
        raise BadReplyError("the reply has too many triples")
    split_lines = [line.split(" ", 2) for line in lines.decode().split("\n") if line]
    if not all(len(parts) == _TRIPLE_PARTS and parts[2] for parts in split_lines):
        raise BadReplyError("a line of the reply is not a triple")
    try:
        return [_triple(*parts) for parts in split_lines]
    except ValueError as error:
        raise UnreadableRdfError(str(error)) from None


def _triple(subject: str, label: str, rest: str) -> Triple:
    if rest[0] != '"' or (rest[-1] == '"' and rest.isprintable() and "\\" not in rest):
        return subject, label, rest
    # The text direction of RDF 1.2 is removed, because N-Triples 1.1 and SPARQL 1.1 do not have it.
    return subject, label, canonical_term(_DIRECTION.sub(r"\1", rest))


_READER = RdfReader()
atexit.register(_READER.close)


def read_triples(data: bytes, form: RdfForm, base: str, *, triples: int, characters: int) -> list[Triple]:
    """Read the triples of a text in UTF-8 with the shared reader of this process.

    >>> read_triples(b"<a> <b> 'c'@EN .", RdfForm.TURTLE, "https://x.example/", triples=9, characters=999)
    [('<https://x.example/a>', '<https://x.example/b>', '"c"@en')]
    """
    return _READER.read(data, form, base, triples=triples, characters=characters)
