"""Checks JSON-LD before it is parsed: it must not refer to remote contexts or be nested too deeply.

In: the text of a document. Out: nothing, or a BrokenDocumentError with the line. A remote context would have to be
fetched from a URL that the document chooses, and would determine the meaning of the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from runnel.errors import BrokenDocumentError
from runnel.sources.documents.decode_json import MAX_DEPTH, is_too_deep, read_one

_HINT = 'write the context into the document: "@context": {"name": "https://schema.org/name"}'


def refuse_remote_contexts(text: str, name: str) -> None:
    """Raise BrokenDocumentError if JSON-LD refers to a remote context, is nested too deeply, or is not JSON.

    >>> refuse_remote_contexts('{"@context": {"name": "https://schema.org/name"}, "name": "Muse"}', "muse.jsonld")
    """
    value = read_one(text, name, hint="JSON-LD must be one JSON object or array")
    if is_too_deep(value):
        raise BrokenDocumentError(
            f"values are nested more than {MAX_DEPTH} levels deep",
            place=f"{name}:1",
            hint="refer to nodes by their @id",
        )
    for url in _remote_contexts(value):
        shown = url[:80] if url.isprintable() else repr(url[:80])
        position = text.find(json.dumps(url))
        line = text.count("\n", 0, max(position, 0)) + 1
        raise BrokenDocumentError(
            f"the document refers to the remote context {shown}, and remote contexts are not fetched",
            place=f"{name}:{line}",
            hint=_HINT,
        )


def _remote_contexts(value: Any) -> Iterator[str]:
    """Yield the URLs of all contexts that a JSON value refers to, at any level."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as node:
                context = node.get("@context")
                contexts = context if isinstance(context, list) else [context]
                yield from (url for url in contexts if isinstance(url, str))
                imported = node.get("@import")
                if isinstance(imported, str):
                    yield imported
                waiting.extend(inner for inner in node.values() if isinstance(inner, dict | list))
            case list() as values:
                waiting.extend(inner for inner in values if isinstance(inner, dict | list))
