"""Wire documents: the decoded content of documents, in document order, before `adapt` converts it to items.

Every decoder returns a WireDocument. The form of a field says how `adapt` has to convert its text. Fields already
have the names of attributes (see `adapt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runnel.errors import InputError
from runnel.model.graph import RdfGraph


class DocumentKind(StrEnum):
    """The format of a document."""

    RSS = "rss"
    RDF = "rdf"
    ATOM = "atom"
    JSON_FEED = "json feed"
    JSON_LINES = "json lines"
    GRAPH = "graph"

    @property
    def repeats(self) -> bool:
        """Whether later versions of the document repeat recent items.

        Feeds do, so only the newest items of their first document are accepted. JSON lines are a log, of which every
        line is accepted, and an RDF document is a single item.
        """
        return self not in (DocumentKind.JSON_LINES, DocumentKind.GRAPH)


class TextForm(StrEnum):
    """How the text of a field is converted."""

    PLAIN = "plain"
    MARKUP = "markup"
    LINK = "link"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class WireField:
    """A value in a document. `base` is the base of its relative links, if the element declares one."""

    name: str
    text: str
    form: TextForm = TextForm.PLAIN
    base: str | None = None


@dataclass(frozen=True, slots=True)
class WireEntry:
    """An entry of a feed: its id (if any), line in the document, fields in order, base of links, and RDF graph."""

    id: str | None
    line: int
    fields: tuple[WireField, ...]
    base: str | None = None
    graph: RdfGraph | None = None


@dataclass(frozen=True, slots=True)
class WireRecord:
    """An object of JSON lines, with its line in the document."""

    line: int
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WireDocument:
    """A decoded document. Feeds have entries, and JSON lines have records.

    `problems` are those of entries or lines that could not be decoded. `note` says what was wrong with a document
    that was decoded in spite of errors. `links` are pairs of relation and address of the feed itself, from JSON Feed
    only (`document_head` reads those of XML).
    """

    kind: DocumentKind
    name: str
    title: str | None = None
    description: str | None = None
    link: str | None = None
    language: str | None = None
    base: str | None = None
    entries: tuple[WireEntry, ...] = ()
    records: tuple[WireRecord, ...] = ()
    problems: tuple[InputError, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    note: str | None = None
