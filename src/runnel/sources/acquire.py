"""Acquisition: from documents to accepted items.

In: documents that sources read, or that were published by hand. Out: items in the log; broken documents and refused
items are quarantined with the reason, and affect no others.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.catalog.logs import match_segments, quarantine
from runnel.catalog.logs.quarantine import Quarantined
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sequencer import last_sequence
from runnel.errors import InputError
from runnel.logs.items.item_log import Accepted, ItemLog
from runnel.model.feed import Feed
from runnel.model.item import Item
from runnel.settings import Settings
from runnel.sources.document_child import DocumentSource
from runnel.sources.document_pool import document_pool
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.wire import DocumentKind
from runnel.sources.rdf.decode_rdf import form_of
from runnel.storage.checksums import write_sealed
from runnel.storage.file_storage import Storage


@dataclass(frozen=True, slots=True)
class Acquisition:
    """What came in: items accepted, items known already, and how many things were put aside."""

    accepted: int = 0
    unchanged: int = 0
    put_aside: int = 0

    def __add__(self, other: Acquisition) -> Acquisition:
        return Acquisition(
            self.accepted + other.accepted,
            self.unchanged + other.unchanged,
            self.put_aside + other.put_aside,
        )


class Acquirer:
    """Reads documents in a sandbox and accepts their items, for all sources and for what is published by hand."""

    def __init__(self, catalog: Catalog, storage: Storage, items: ItemLog, folder: Path, settings: Settings) -> None:
        self.catalog = catalog
        self._storage = storage
        self._items = items
        self.folder = folder
        self.settings = settings

    def lag(self) -> int:
        """How many accepted items wait for matching."""
        with self.catalog.read() as connection:
            return last_sequence(connection) - match_segments.matched_upto(connection)

    def take_document(
        self, feed: Feed, data: bytes, place: str, *, is_first: bool = False
    ) -> tuple[Accepted, list[InputError]]:
        """Accept the items of a document; raises BrokenDocument where it cannot be decoded.

        `is_first` says that nothing was read from the feed's address before: its past must not flood anybody.
        """
        adapted = self.read_document(feed, data, place)
        return self.accept_adapted(feed, adapted, is_first=is_first), list(adapted.problems)

    def read_document(
        self,
        feed: Feed,
        data: bytes,
        place: str,
        *,
        base: str | None = None,
        charset: str | None = None,
        media_type: str | None = None,
    ) -> AdaptedFeed:
        """The items of a document, read in a sandbox and not accepted yet.

        `base` is the URL that its relative links are relative to; `charset` and `media_type` are what its server
        said.
        """
        source = DocumentSource(
            place,
            feed.name,
            limit=self.settings.max_document_bytes,
            max_items=self.settings.max_document_items,
            charset=charset,
            base=base,
            form=form_of(media_type, base or place),
        )
        return document_pool().read(data, source)

    def accept_adapted(self, feed: Feed, adapted: AdaptedFeed, *, is_first: bool = False) -> Accepted:
        """Accept what `read_document` gave."""
        accept, remember = list(adapted.items), list[Item]()
        if is_first:
            accept, remember = first_fetch(adapted.items, self.settings.first_fetch_items, kind=adapted.kind)
        return self._items.accept(feed.id, accept, remember=remember)

    def keep_aside(self, feed: Feed, problems: Sequence[InputError], kind: str, data: bytes | None) -> None:
        """Keep what was refused, with its bytes, for inspection."""
        path = None
        if data is not None:
            path = write_sealed(self._storage, f"quarantine/{uuid.uuid4().hex}", data).path
        with self.catalog.write() as connection:
            for problem in problems:
                reason = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
                quarantine.add_quarantined(
                    connection,
                    Quarantined(kind, problem.place or feed.name, reason, feed=feed.id, path=path),
                )


def first_fetch(
    items: Sequence[Item], newest: int, *, kind: DocumentKind | None = None
) -> tuple[list[Item], list[Item]]:
    """The items of a feed's first document, oldest first, in two lists: those to accept, and those to remember.

    The newest items are accepted. The ids of the others are remembered as seen, so that they are never new later. A
    document that does not repeat itself (JSON lines) is accepted whole.

    >>> accepted, remembered = first_fetch([Item("F", str(n), {}) for n in range(5)], 2)
    >>> [item.id for item in accepted], [item.id for item in remembered]
    (['3', '4'], ['0', '1', '2'])
    """
    if kind is not None and not kind.repeats:
        return list(items), []
    border = max(0, len(items) - max(newest, 0))
    return list(items[border:]), list(items[:border])
