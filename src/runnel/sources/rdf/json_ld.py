"""JSON-LD screened before its parser sees it: nothing is fetched for it, and nothing is nested without end.

In: the text of a document. Out: nothing, or BrokenDocument with the line. A context that is only named would have to
be fetched from somewhere that the document chooses, and would say what the document means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from runnel.errors import BrokenDocumentError
from runnel.sources.documents.decode_json import MAX_DEPTH, read_one, too_deep

_HINT = 'write the context into the document: "@context": {"name": "https://schema.org/name"}'


def refuse_remote_contexts(text: str, name: str) -> None:
    """Refuse JSON-LD that names a context elsewhere, or is no JSON.

    >>> refuse_remote_contexts('{"@context": {"name": "https://schema.org/name"}, "name": "Muse"}', "muse.jsonld")
    """
    value = read_one(text, name, hint="JSON-LD is one JSON object or array")
    if too_deep(value):
        raise BrokenDocumentError(
            f"values are nested more than {MAX_DEPTH} deep", place=f"{name}:1", hint="refer to nodes by their @id"
        )
    for named in _named(value):
        shown = named[:80] if named.isprintable() else repr(named[:80])
        at = text.find(json.dumps(named))
        line = text.count("\n", 0, max(at, 0)) + 1
        raise BrokenDocumentError(
            f"the context {shown} is elsewhere, and nothing is fetched for a document",
            place=f"{name}:{line}",
            hint=_HINT,
        )


def _named(value: Any) -> Iterator[str]:
    """The contexts that are only named, wherever they stand."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as found:
                given = found.get("@context")
                contexts = given if isinstance(given, list) else [given]
                yield from (one for one in contexts if isinstance(one, str))
                imported = found.get("@import")
                if isinstance(imported, str):
                    yield imported
                waiting.extend(one for one in found.values() if isinstance(one, dict | list))
            case list() as several:
                waiting.extend(one for one in several if isinstance(one, dict | list))
