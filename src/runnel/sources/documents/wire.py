"""Wire shapes: what a document says, in its own order and words, before it is adapted to items.

Every decoder gives a WireDocument. A field has a form, which says how `adapt` has to read its text; names are
already those of the attributes (see `adapt`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runnel.errors import InputError
from runnel.model.graph import RdfGraph


class DocumentKind(StrEnum):
    """The family of a document."""

    RSS = "rss"
    RDF = "rdf"
    ATOM = "atom"
    JSON_FEED = "json feed"
    JSON_LINES = "json lines"
    GRAPH = "graph"

    @property
    def repeats(self) -> bool:
        """Whether the document shows a feed's recent past again and again, newest first.

        A polled feed does, so its first document must not flood subscribers. JSON lines are a log: each line was
        put there to be read, in order; and an RDF document is one item.
        """
        return self not in (DocumentKind.JSON_LINES, DocumentKind.GRAPH)


class TextForm(StrEnum):
    """How the text of a field is to be read."""

    PLAIN = "plain"
    MARKUP = "markup"
    LINK = "link"
    DATE = "date"


@dataclass(frozen=True, slots=True)
class WireField:
    """One value as the document gives it; `base` is what its relative links are relative to, where it says so."""

    name: str
    text: str
    form: TextForm = TextForm.PLAIN
    base: str | None = None


@dataclass(frozen=True, slots=True)
class WireEntry:
    """One entry of a feed: its own id (if any), its line in the document, its fields in order and what RDF says."""

    id: str | None
    line: int
    fields: tuple[WireField, ...]
    base: str | None = None
    graph: RdfGraph | None = None


@dataclass(frozen=True, slots=True)
class WireRecord:
    """One object of JSON lines, with its line in the document."""

    line: int
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WireDocument:
    """A decoded document. Feeds have entries, JSON lines have records; `problems` are unreadable lines.

    `note` says what was wrong with a document that was read all the same. `links` are pairs of relation and address
    of the feed itself, where only its decoder can find them.
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
