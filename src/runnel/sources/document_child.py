"""A reader's process: documents come in over a socket, what was read of them goes back.

Started by `document_pool` with the socket's number. A refusal is an answer like any other; whatever else goes wrong
ends the process, and `document_pool` starts another.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from runnel.errors import InputError
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.decode import decode
from runnel.sources.documents.safe_links import join_base


@dataclass(frozen=True, slots=True)
class Document:
    """Bytes to be read: their name in messages, their feed's name, and what their server said of them."""

    data: bytes
    name: str
    feed: str
    limit: int
    charset: str | None = None
    base: str | None = None
    form: RdfForm | None = None


def read_document(document: Document) -> AdaptedFeed:
    """Decode and adapt; relative links are relative to `base` where the document does not say otherwise.

    >>> read_document(Document(b'{"id": 1, "title": "Muse"}', "a.jsonl", "News", 1000)).items[0].id
    '1'
    """
    wire = decode(
        document.data,
        document.name,
        limit=document.limit,
        charset=document.charset,
        form=document.form,
        base=document.base,
    )
    if document.base is not None:
        wire = replace(wire, base=join_base(document.base, wire.base))
    return adapt(wire, document.feed)


def main(descriptor: int) -> None:
    """Answer until the other side hangs up."""
    with Connection(descriptor) as connection:
        while True:
            try:
                document: Document = pickle.loads(connection.recv_bytes())  # noqa: S301
            except EOFError:
                return
            answer: AdaptedFeed | InputError
            try:
                answer = read_document(document)
            except InputError as refusal:
                answer = refusal
            connection.send_bytes(pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main(int(sys.argv[1]))
