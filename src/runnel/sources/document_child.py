"""The program that runs in a sandbox for documents: decodes a document and replies with its items.

A request is a line of JSON, followed by the document. An InputError is sent as a reply. Any other exception ends the
process, and the pool starts a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from runnel.errors import InputError
from runnel.families import registry
from runnel.model.table import TableSchema
from runnel.net.safe_links import join_base
from runnel.sandbox.rdf_reader import RdfForm
from runnel.sources.document_reply import pack_reply
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.bounds import MAX_ITEMS, refuse_large, refuse_more_items
from runnel.sources.documents.decode import MAX_DOCUMENT, decode
from runnel.sources.documents.document_head import read_head
from runnel.sources.tables.read_changes import read_changes


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """How to read a document: its name in messages, the name of its feed, its limits, and the server's metadata.

    `table` is the schema of a table if the document has changes of it (see `TableSchema.to_json`), and `is_whole`
    says that it has all rows.
    """

    name: str
    feed: str
    limit: int = MAX_DOCUMENT
    max_items: int = MAX_ITEMS
    charset: str | None = None
    base: str | None = None
    form: RdfForm | None = None
    table: str | None = None
    is_whole: bool = False


def open_program() -> Callable[[bytes], bytes]:
    """Load the kinds of structured values, so that no document is charged for it. Return the request handler."""
    registry()
    return answer


def answer(request: bytes) -> bytes:
    """Return the reply to a request."""
    head, _, data = request.partition(b"\n")
    fields = json.loads(head)
    form = fields.pop("form")
    source = DocumentSource(**fields, form=None if form is None else RdfForm(form))
    try:
        return pack_reply(read_document(data, source))
    except InputError as error:
        return pack_reply(error)


def pack_request(data: bytes, source: DocumentSource) -> bytes:
    """Return the bytes of a request to read a document."""
    return json.dumps(asdict(source)).encode() + b"\n" + data


def read_document(data: bytes, source: DocumentSource) -> AdaptedFeed:
    """Decode and adapt a document in this process.

    Relative links are resolved against `base`, or against the base that the document declares.

    >>> read_document(b'{"id": 1, "title": "Muse"}', DocumentSource("a.jsonl", "News")).items[0].id
    '1'
    """
    if source.table is not None:
        schema = TableSchema.from_json(source.table)
        refuse_large(data, source.name, source.limit)
        return read_changes(
            data, source.name, source.feed, schema, max_items=source.max_items, is_whole=source.is_whole
        )
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
