"""The program of the document readers' sandbox: documents come in, their items go back.

A request is a line of JSON and the document after it. A refusal is a reply like any other; every other error ends the
process, and the pool starts another.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from runnel.errors import InputError
from runnel.families import registry
from runnel.net.safe_links import join_base
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.document_reply import pack_reply
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.bounds import MAX_ITEMS, refuse_more_items
from runnel.sources.documents.decode import MAX_DOCUMENT, decode
from runnel.sources.documents.document_head import read_head


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """How a document is to be read: its name in messages, its feed's name, its bounds, and what its server said."""

    name: str
    feed: str
    limit: int = MAX_DOCUMENT
    max_items: int = MAX_ITEMS
    charset: str | None = None
    base: str | None = None
    form: RdfForm | None = None


def open_program() -> Callable[[bytes], bytes]:
    """The function that answers requests. The kinds of value are loaded first: no document is charged for that."""
    registry()
    return answer


def answer(request: bytes) -> bytes:
    """The reply to a request."""
    head, _, data = request.partition(b"\n")
    fields = json.loads(head)
    form = fields.pop("form")
    source = DocumentSource(**fields, form=None if form is None else RdfForm(form))
    try:
        return pack_reply(read_document(data, source))
    except InputError as refusal:
        return pack_reply(refusal)


def pack_request(data: bytes, source: DocumentSource) -> bytes:
    """The request to read a document."""
    return json.dumps(asdict(source)).encode() + b"\n" + data


def read_document(data: bytes, source: DocumentSource) -> AdaptedFeed:
    """Decode and adapt, in this process. Relative links are relative to `base`, unless the document says otherwise.

    >>> read_document(b'{"id": 1, "title": "Muse"}', DocumentSource("a.jsonl", "News")).items[0].id
    '1'
    """
    wire = decode(
        data,
        source.name,
        limit=source.limit,
        charset=source.charset,
        form=source.form,
        base=source.base,
        max_items=source.max_items,
    )
    refuse_more_items(len(wire.entries) + len(wire.records), source.max_items, f"{source.name}:1")
    if source.base is not None:
        wire = replace(wire, base=join_base(source.base, wire.base))
    adapted = adapt(wire, source.feed)
    head = read_head(data)
    return replace(adapted, head=replace(head, links=head.links or adapted.head.links))
