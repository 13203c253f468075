"""RDF text to triples, read in a process of its own with bounded time and memory.

In: the text of a document, its form and what its relative IRIs are relative to. Out: its triples in document order,
in canonical N-Triples terms, with the blank nodes under the parser's names; or an Unreadable. The process is kept for
the next document; one that dies or does not come to an end over a document is replaced.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import socket
import subprocess
import sys
import threading
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path

from runnel.model.graph import Triple, canonical_term

_CHILD = Path(__file__).with_name("rdf_child.py")
_MEGABYTES = 1024
_SECONDS = 10.0
_PLACE = re.compile(
    r"Parser error at line \d+ (?:column \d+|between columns? \d+ and (?:line \d+ )?(?:column )?\d+): "
)
_DIRECTION = re.compile(r"(@[A-Za-z0-9-]+?)--[a-z]+$")


class RdfForm(StrEnum):
    """The notations of RDF."""

    TURTLE = "turtle"
    N_TRIPLES = "n-triples"
    N_QUADS = "n-quads"
    TRIG = "trig"
    RDF_XML = "rdf/xml"
    JSON_LD = "json-ld"


class UnreadableRdfError(Exception):
    """Why a text is not read as RDF; `line` and `column` where that is known."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class RdfReader:
    """Reads one document at a time, in a process that is started when it is first needed. For many threads.

    >>> reader = RdfReader()
    >>> reader.read(b"<urn:a> <urn:b> 1, 2 .", RdfForm.TURTLE, "urn:x", triples=1, characters=999)
    Traceback (most recent call last):
    runnel.sandbox.rdf_reader.UnreadableRdfError: the document has more than 1 triples
    >>> reader.close()
    """

    def __init__(self, *, seconds: float = _SECONDS, megabytes: int = _MEGABYTES) -> None:
        self._seconds = seconds
        self._megabytes = megabytes
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def read(self, data: bytes, form: RdfForm, base: str, *, triples: int, characters: int) -> list[Triple]:
        """The triples of a text in UTF-8, at most so many and in all so long."""
        asked = {"form": form.value, "base": base, "triples": triples, "characters": characters}
        with self._lock:
            child = self._child if self._child is not None and self._child.is_usable() else _Child(self._megabytes)
            self._child = child
            try:
                answer = child.ask(json.dumps(asked).encode() + b"\n" + data, self._seconds)
            except _ProcessEndedError as ended:
                self._child = None
                raise UnreadableRdfError(f"the document could not be read: {ended}") from None
        head, _, lines = answer.partition(b"\n")
        told = json.loads(head)
        match told:
            case {"problem": str() as problem}:
                raise UnreadableRdfError(_PLACE.sub("", problem), told.get("line"), told.get("column"))
            case {"more": "triples"}:
                raise UnreadableRdfError(f"the document has more than {triples} triples")
            case {"more": _}:
                raise UnreadableRdfError(f"the triples of the document are longer than {characters} characters")
        try:
            return [_triple(line) for line in lines.decode().split("\n") if line]
        except ValueError as error:
            raise UnreadableRdfError(str(error)) from None

    def close(self) -> None:
        """End the process; the next document starts another."""
        with self._lock:
            if self._child is not None:
                self._child.end()
            self._child = None


def _triple(line: str) -> Triple:
    subject, label, rest = line.split(" ", 2)
    if rest[0] != '"' or (rest[-1] == '"' and rest.isprintable() and "\\" not in rest):
        return subject, label, rest
    # RDF 1.2's direction of writing is left out: neither N-Triples 1.1 nor SPARQL 1.1 has it.
    return subject, label, canonical_term(_DIRECTION.sub(r"\1", rest))


class _ProcessEndedError(Exception):
    """The process gave no answer."""


class _Child:
    """The process, and the socket to it."""

    def __init__(self, megabytes: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", str(_CHILD), str(theirs.fileno()), str(megabytes)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
            )
        self._connection: Connection = Connection(ours.detach())
        self._owner = os.getpid()

    def is_usable(self) -> bool:
        """Whether the process is still there, and ours: a fork must not share the socket."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, question: bytes, seconds: float) -> bytes:
        """The answer; where there is none, the process is gone as well."""
        try:
            self._connection.send_bytes(question)
            if not self._connection.poll(seconds):
                raise _ProcessEndedError(f"there was no end to it in {seconds:g} seconds")
            return self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            raise _ProcessEndedError(f"the process that read it ended with code {self.end()}") from error
        except _ProcessEndedError:
            self.end()
            raise

    def end(self) -> int:
        """Hang up, and see to it that the process is gone."""
        self._connection.close()
        if self._owner != os.getpid():
            return 0
        try:
            return self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


_READER = RdfReader()
atexit.register(_READER.close)


def read_triples(data: bytes, form: RdfForm, base: str, *, triples: int, characters: int) -> list[Triple]:
    """The triples of a text in UTF-8, by the reader of this process.

    >>> read_triples(b"<a> <b> 'c'@EN .", RdfForm.TURTLE, "https://x.example/", triples=9, characters=999)
    [('<https://x.example/a>', '<https://x.example/b>', '"c"@en')]
    """
    return _READER.read(data, form, base, triples=triples, characters=characters)
